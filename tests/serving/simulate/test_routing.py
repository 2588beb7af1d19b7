"""Routing in virtual time: what the ledger says of the rules, shown with the rules themselves."""

from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from ridgeline.serving.fake.timing import Machine, machine
from ridgeline.serving.policy.route import RULES
from ridgeline.serving.simulate.routing import Outcome, Setup, simulate
from ridgeline.serving.simulate.talks import Talk, Turn, chats, heavy_tail, of_trace, prompt_tokens
from ridgeline.workload import read_trace

TRACES = Path(__file__).parents[4] / "shared" / "data" / "traces"


@cache
def h100() -> Machine:
    """Llama 3.1 8B on an H100, by the fitted step-time model."""
    return machine("llama-3.1-8b", "h100-sxm")


def run(rule: str, talks: list[Talk], **setup: int) -> Outcome:
    return simulate(talks, Setup(rule, h100(), **setup))


@pytest.mark.proves("S066")
def test_ten_turn_chats_prefill_4x_fewer_tokens_than_least_loaded_with_even_load() -> None:
    talks = chats(160, per_s=4.0)
    sticky, least = run("prefix-sticky", talks), run("least-load", talks)
    assert least.prefilled_tokens >= 4 * sticky.prefilled_tokens
    assert sticky.max_over_mean < 1.3
    assert sticky.ttft_s(0.99) < least.ttft_s(0.99)


@pytest.mark.proves("S066")
@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_under_load_behind_a_system_prompt_that_all_share(seed: int) -> None:
    talks = chats(160, per_s=8.0, system_tokens=1000, think_s=1.0, seed=seed)
    sticky, least = run("prefix-sticky", talks), run("least-load", talks)
    assert least.prefilled_tokens >= 4 * sticky.prefilled_tokens
    assert sticky.max_over_mean < 1.3


@pytest.mark.proves("S187")
@pytest.mark.parametrize("seed", range(3))
def test_cache_and_queue_aware_routing_beats_round_robins_p99_twofold_on_a_heavy_tail(seed) -> None:
    """So many requests that the first one for each long document is not the slowest hundredth."""
    talks = heavy_tail(3000, per_s=60.0, seed=seed)
    sticky, turns = run("prefix-sticky", talks), run("round-robin", talks)
    assert turns.ttft_s(0.99) >= 2 * sticky.ttft_s(0.99)


@pytest.mark.proves("S187")
def test_so_it_does_on_a_recorded_heavy_tail() -> None:
    """Mooncake's synthetic trace at three times its speed: round robin's queues are full."""
    path = TRACES / "mooncake_synthetic.jsonl.gz"
    if not path.exists():
        pytest.skip("needs the recorded traces in ../shared")
    trace = read_trace(path)
    talks = of_trace(islice(trace.requests, 1500), speed=3.0)
    sizes = {"block_tokens": trace.block_tokens, "max_batched_tokens": 8192}
    sticky, turns = run("prefix-sticky", talks, **sizes), run("round-robin", talks, **sizes)
    assert turns.ttft_s(0.99) >= 2 * sticky.ttft_s(0.99)
    assert turns.total_s(0.99) >= 2 * sticky.total_s(0.99)


def test_few_chats_behind_one_system_prompt_spread_too() -> None:
    """With one of 1,000 tokens on one replica only, that one drew all of them once."""
    talks = chats(20, per_s=6.0, system_tokens=1024, think_s=1.0)
    assert run("prefix-sticky", talks).max_over_mean < 1.5


def test_where_decoding_is_all_the_work_it_is_no_worse_than_least_load() -> None:
    """Also behind a preamble that all prompts share, which must not draw them together."""
    talks = chats(1500, per_s=50.0, turns=1, system_tokens=32, said_tokens=60, answer_tokens=400)
    sticky, least = run("prefix-sticky", talks), run("least-load", talks)
    assert sticky.total_s(0.99) <= 1.01 * least.total_s(0.99)
    assert sticky.total_s(0.5) <= 1.01 * least.total_s(0.5)
    assert sticky.max_over_mean < 1.05


def test_a_session_prefills_less_than_least_load_too() -> None:
    talks = chats(80, per_s=4.0)
    session, least = run("session", talks), run("least-load", talks)
    assert least.prefilled_tokens >= 2 * session.prefilled_tokens


@pytest.mark.parametrize("rule", RULES)
def test_every_request_is_answered_and_counted_off_again(rule: str) -> None:
    talks = chats(20, per_s=10.0, turns=3)
    outcome = run(rule, talks, replicas=3, seed=1)
    assert len(outcome.answers) == 60
    assert sum(one.prompt_tokens for one in outcome.answers) == prompt_tokens(talks)
    assert all(0 < one.ttft_s <= one.total_s for one in outcome.answers)
    assert len(outcome.loads) == 3


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_gives_the_same_run(rule: str) -> None:
    talks = chats(20, per_s=10.0, turns=3)
    assert run(rule, talks, seed=7) == run(rule, talks, seed=7)


def test_a_request_alone_takes_what_the_step_time_model_says() -> None:
    steps = h100().steps
    outcome = run("least-load", [Talk("one", 1.0, (Turn(1000, 3, tuple(range(62))),))])
    one = outcome.answers[0]
    prefill_s = steps.step_s(prompt_tokens=1000, attended_tokens=500.0)
    assert one.ttft_s == pytest.approx(prefill_s)
    decode_s = steps.step_s(1, 1000) + steps.step_s(1, 1001)
    assert one.total_s == pytest.approx(prefill_s + decode_s)


def test_a_turn_finds_the_prompt_and_the_answer_before_it() -> None:
    first, second = Turn(160, 32, tuple(range(12))), Turn(200, 5, tuple(range(12)))
    outcome = run("prefix-sticky", [Talk("one", 0.0, (first, second))], replicas=1)
    # The answer's last token is never computed, so its last block is not there.
    assert [one.cached_tokens for one in outcome.answers] == [0, 11 * 16]


def test_goodput_counts_what_came_in_time() -> None:
    outcome = run("least-load", chats(5, per_s=1.0, turns=1))
    assert outcome.goodput_per_s(10.0) == pytest.approx(5 / outcome.lasted_s)
    assert outcome.goodput_per_s(0.0) == 0
