"""Routing in virtual time: what the ledger says of the rules, shown with the rules themselves."""

from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import clients, servings

from ridgeline.serving.fake.timing import Machine, machine
from ridgeline.serving.policy.route import RULES
from ridgeline.serving.policy.route_rules import THEIRS
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.routing import loads, max_over_mean, prefilled_tokens, routed
from ridgeline.serving.simulate.talks import Talk, Turn, chats, heavy_tail, of_trace, prompt_tokens
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import read_trace

TRACES = Path(__file__).parents[4] / "shared" / "data" / "traces"


@cache
def h100() -> Machine:
    """Llama 3.1 8B on an H100, by the fitted step-time model."""
    return machine("llama-3.1-8b", "h100-sxm")


def run(rule: str, talks: list[Talk], **sizes: int) -> Outcome:
    return routed(talks, rule, h100(), **sizes)


def ttft_s(outcome: Outcome, share: float) -> float:
    return percentile(outcome.ttft_s(), share)


def total_s(outcome: Outcome, share: float) -> float:
    return percentile(outcome.e2e_s(), share)


@pytest.mark.proves("S066")
def test_ten_turn_chats_prefill_4x_fewer_tokens_than_least_loaded_with_even_load() -> None:
    talks = chats(160, per_s=4.0)
    sticky, least = run("prefix-sticky", talks), run("least-load", talks)
    assert prefilled_tokens(least) >= 4 * prefilled_tokens(sticky)
    assert max_over_mean(sticky) < 1.3
    assert ttft_s(sticky, 0.99) < ttft_s(least, 0.99)


@pytest.mark.proves("S066")
@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_under_load_behind_a_system_prompt_that_all_share(seed: int) -> None:
    talks = chats(160, per_s=8.0, system_tokens=1000, think_s=1.0, seed=seed)
    sticky, least = run("prefix-sticky", talks), run("least-load", talks)
    assert prefilled_tokens(least) >= 4 * prefilled_tokens(sticky)
    assert max_over_mean(sticky) < 1.3


@pytest.mark.proves("S187")
@pytest.mark.parametrize("seed", range(3))
def test_cache_and_queue_aware_routing_beats_round_robins_p99_twofold_on_a_heavy_tail(seed) -> None:
    """So many requests that the first one for each long document is not the slowest hundredth."""
    talks = heavy_tail(3000, per_s=60.0, seed=seed)
    sticky, turns = run("prefix-sticky", talks), run("round-robin", talks)
    assert ttft_s(turns, 0.99) >= 2 * ttft_s(sticky, 0.99)


@pytest.mark.proves("S187")
def test_so_it_does_on_a_recorded_heavy_tail() -> None:
    """Mooncake's synthetic trace at twice its speed: round robin's queues are full."""
    path = TRACES / "mooncake_synthetic.jsonl.gz"
    if not path.exists():
        pytest.skip("needs the recorded traces in ../shared")
    trace = read_trace(path)
    talks = of_trace(islice(trace.requests, 2500), speed=2.0)
    sizes = {"block_tokens": trace.block_tokens, "max_batched_tokens": 8192}
    sticky, turns = run("prefix-sticky", talks, **sizes), run("round-robin", talks, **sizes)
    assert ttft_s(turns, 0.99) >= 2 * ttft_s(sticky, 0.99)
    assert total_s(turns, 0.99) >= 2 * total_s(sticky, 0.99)


def test_few_chats_behind_one_system_prompt_spread_too() -> None:
    """With one of 1,000 tokens on one replica only, that one drew all of them once."""
    talks = chats(20, per_s=6.0, system_tokens=1024, think_s=1.0)
    assert max_over_mean(run("prefix-sticky", talks)) < 1.5


def test_where_decoding_is_all_the_work_it_is_no_worse_than_least_load() -> None:
    """Also behind a preamble that all prompts share, which must not draw them together."""
    talks = chats(1500, per_s=50.0, turns=1, system_tokens=32, said_tokens=60, answer_tokens=400)
    sticky, least = run("prefix-sticky", talks), run("least-load", talks)
    assert total_s(sticky, 0.99) <= 1.01 * total_s(least, 0.99)
    assert total_s(sticky, 0.5) <= 1.01 * total_s(least, 0.5)
    assert max_over_mean(sticky) < 1.05


def test_a_session_prefills_less_than_least_load_too() -> None:
    talks = chats(80, per_s=4.0)
    session, least = run("session", talks), run("least-load", talks)
    assert prefilled_tokens(least) >= 2 * prefilled_tokens(session)


@pytest.mark.parametrize("rule", THEIRS)
def test_the_rules_of_others_find_what_is_cached_too(rule: str) -> None:
    talks = chats(80, per_s=4.0)
    assert prefilled_tokens(run("least-load", talks)) >= 1.5 * prefilled_tokens(run(rule, talks))


def test_rules_that_look_at_matches_alone_send_a_shared_beginning_to_one_replica() -> None:
    """As the guide says of them; its numbers are docs/results/routing-rules.json's."""
    talks = chats(160, per_s=8.0, system_tokens=1000, think_s=1.0)
    sticky = run("prefix-sticky", talks)
    assert prefilled_tokens(sticky) == 306_101
    assert round(max_over_mean(sticky), 2) == 1.07
    for rule in ("llm-d-scorers", "production-stack-prefix"):
        assert max_over_mean(run(rule, talks)) == pytest.approx(8.0)


@pytest.mark.parametrize("rule", RULES)
def test_every_request_is_answered_and_counted_off_again(rule: str) -> None:
    talks = chats(20, per_s=10.0, turns=3)
    outcome = run(rule, talks, replicas=3, seed=1)
    assert outcome.answered.sum() == outcome.requests == 60
    assert outcome.columns["prompt_tokens"].sum() == prompt_tokens(talks)
    assert (outcome.ttft_s() > 0).all()
    assert (outcome.ttft_s() <= outcome.e2e_s()).all()
    assert len(loads(outcome)) == 3


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_gives_the_same_run(rule: str) -> None:
    talks = chats(20, per_s=10.0, turns=3)
    assert run(rule, talks, seed=7).digest == run(rule, talks, seed=7).digest


@pytest.mark.parametrize("rule", RULES)
def test_another_seed_gives_another_run_where_the_rule_draws(rule: str) -> None:
    """Short prompts that end at once: replicas are often equal."""
    talks = chats(20, per_s=10.0, turns=1)
    digests = {run(rule, talks, seed=seed).digest for seed in range(3)}
    assert (len(digests) > 1) == RULES[rule].draws


@given(servings(), clients(), st.sampled_from(sorted(THEIRS)), st.booleans())
@settings(deadline=None, max_examples=50)
def test_whatever_the_rule_jumps_change_nothing(serving, make, rule: str, fair: bool) -> None:
    """Random platforms with faults; that nothing is left over each run checks itself."""
    models = tuple(replace(one, rule=rule) for one in serving.models)
    serving = replace(serving, models=models, gateway=replace(serving.gateway, fair=fair))
    stepped = simulate(replace(serving, jumps=False), make())
    assert simulate(serving, make()).digest == stepped.digest


def test_a_request_alone_takes_what_the_step_time_model_says() -> None:
    steps = h100().steps
    outcome = run("least-load", [Talk("one", 1.0, (Turn(1000, 3, tuple(range(62))),))])
    prefill_s = steps.step_s(prompt_tokens=1000, attended_tokens=500.0)
    assert outcome.ttft_s()[0] == pytest.approx(prefill_s)
    decode_s = steps.step_s(1, 1000) + steps.step_s(1, 1001)
    assert outcome.e2e_s()[0] == pytest.approx(prefill_s + decode_s)


def test_a_turn_finds_the_prompt_and_the_answer_before_it() -> None:
    first, second = Turn(160, 32, tuple(range(12))), Turn(200, 5, tuple(range(12)))
    outcome = run("prefix-sticky", [Talk("one", 0.0, (first, second))], replicas=1)
    # The answer's last token is never computed, so its last block is not there.
    assert list(outcome.columns["cached_tokens"]) == [0, 11 * 16]


def test_loads_are_means_over_time_and_a_replica_that_got_nothing_counts() -> None:
    outcome = run("least-load", [Talk("one", 1.0, (Turn(1000, 3, ()),))], replicas=2)
    assert sorted(loads(outcome)) == [0.0, pytest.approx(outcome.e2e_s()[0] / outcome.lasted_s)]
    assert max_over_mean(outcome) == 2.0
    assert np.isclose(outcome.lasted_s, 1.0 + outcome.e2e_s()[0])
