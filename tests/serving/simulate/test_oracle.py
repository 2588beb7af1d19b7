"""No cache finds more than the oracle says."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import engine, model, traffic

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate import series as series_module
from ridgeline.serving.simulate.oracle import oracle
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.streams import Sessions, Stream
from ridgeline.serving.simulate.traffic import Loop, Seeded, Streams, Traffic
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, Trace, parse_arrivals, parse_sizes

SIZES = {"chat": 16}
ROOMY = Machine(Plain(0.01, 0.0001, 20_000.0), 10_000 * 16)


def traced(requests, **changes):
    """Traffic of a trace with blocks of 16."""
    return Traffic(Trace("t", tuple(requests), 16, timed=True), "chat", **changes)


@given(
    traffic(),
    st.integers(1, 4),
    st.integers(1, 64),
    st.sampled_from(["prefix-sticky", "round-robin"]),
)
@settings(deadline=None)
def test_with_room_for_all_no_platform_beats_the_oracle(requests, replicas, slots, rule):
    """Whoever comes at one instant, waits, or is served out of turn."""
    asked = traced(requests)
    one = model(replicas=replicas, slots=slots, rule=rule, engine=engine(machine=ROOMY))
    outcome = simulate(Serving((one,)), asked.clients(0))
    told = oracle(outcome, asked, replicas * 10_000 * 16, SIZES)
    if told is None:
        assert outcome.hit_rate == 0
        return
    assert outcome.hit_rate <= told.unlimited + 1e-12
    assert told.one_cache == pytest.approx(told.unlimited), "which has room for all"


@given(traffic())
@settings(deadline=None, max_examples=30)
def test_one_request_after_another_finds_all_but_the_last_token(requests):
    """A closed loop of one, and prompts that do not end with a block: nothing is in the way."""
    odd = [replace(one, prompt_tokens=one.prompt_tokens // 16 * 16 + 1) for one in requests]
    odd = [replace(one, blocks=one.blocks[: one.prompt_tokens // 16]) for one in odd]
    asked = traced(odd, loop=Loop(1))
    outcome = simulate(Serving((model(engine=engine(machine=ROOMY)),)), asked.clients(0))
    assert outcome.hit_rate == pytest.approx(oracle(outcome, asked, 1, SIZES).unlimited)


def test_a_small_cache_finds_less():
    requests = [Request(float(number), 160, 1, tuple(range(10))) for number in range(4)]
    asked = traced(requests)
    outcome = simulate(Serving((model(),)), asked.clients(0))
    assert oracle(outcome, asked, 160, SIZES).one_cache == pytest.approx(0.75)
    assert oracle(outcome, asked, 16, SIZES).one_cache == 0, "the first block is gone when it comes"


def streams(*some):
    return Traffic(Streams("w", some), "chat")


def run(asked, **changes):
    one = model(engine=engine(machine=ROOMY), **changes)
    return simulate(
        Serving((one, replace(one, name="code"))),
        asked.clients(0),
        series=Series(keeps_prompts=True),
    )


@given(st.integers(1, 3), st.integers(1, 64), st.integers(0, 200))
@settings(deadline=None, max_examples=30)
def test_conversations_are_bounded_too_and_their_turns_find_their_answers(replicas, slots, shared):
    talk = Stream(
        "talk",
        rate_per_s=5.0,
        requests=10,
        prompt=parse_sizes("100", where=""),
        output=parse_sizes("50", where=""),
        shared_tokens=shared,
        sessions=Sessions(parse_sizes("4", where=""), 0.5),
    )
    asked = streams(talk, replace(talk, name="more", model="code"))
    outcome = run(asked, replicas=replicas, slots=slots)
    told = oracle(outcome, asked, 10**9, {"chat": 16, "code": 16})
    assert 0.4 < told.unlimited < 0.9
    assert outcome.hit_rate <= told.unlimited + 1e-12
    assert told.one_cache == pytest.approx(told.unlimited)
    assert oracle(outcome, asked, 10**9, {"chat": 16, "code": 32}) is None, "sizes differ"


def test_models_share_no_prompts():
    prompts = Stream("a", rate_per_s=5.0, requests=20, shared_tokens=160)
    prompts = replace(prompts, prompt=parse_sizes("160", where=""))
    alone = oracle(run(streams(prompts)), streams(prompts), 10**9, SIZES)
    both = streams(prompts, replace(prompts, name="b", model="code"))
    told = oracle(run(both), both, 10**9, {"chat": 16, "code": 16})
    assert told.unlimited == pytest.approx(alone.unlimited)


def test_too_many_blocks_are_not_kept(monkeypatch):
    monkeypatch.setattr(series_module, "_MOST_BLOCKS", 50)
    prompts = Stream("a", rate_per_s=5.0, requests=20, shared_tokens=160)
    outcome = run(streams(prompts))
    assert outcome.series.prompts is None
    assert oracle(outcome, streams(prompts), 10**9, SIZES) is None


def test_what_says_nothing_of_shared_prompts_has_no_bound():
    sizes = parse_sizes("100", where="")
    drawn = Traffic(Seeded(parse_arrivals("poisson"), sizes, sizes, 1.0, 5), "chat")
    outcome = simulate(Serving((model(),)), drawn.clients(0))
    assert oracle(outcome, drawn, 1000, SIZES) is None
