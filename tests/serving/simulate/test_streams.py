"""Streams: drawn for themselves, blocks of their own, at the same time."""

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.clients import Manners, Several
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.profile import parse_profile
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.streams import Sessions, Stream, seed_of
from ridgeline.serving.simulate.traffic import Streams, Traffic
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, Sizes, Trace

ENGINE = Engine(Machine(Plain(0.01, 0.0, 20_000.0), 200_000))
SERVING = Serving((Model("chat", ENGINE, 2), Model("code", ENGINE)))
SMALL = {"prompt": Sizes("fixed", 100), "output": Sizes("fixed", 10)}
ASKS = Stream("asks", tenant="search", rate_per_s=4.0, requests=50, **SMALL)


def asked(*streams: Stream, seed: int = 0, serving: Serving = SERVING):
    """What is asked: instant, model, sizes, tenant and session of each, by tenant."""
    found = []
    traffic = Traffic(Streams("w", streams), "chat")
    crowd = traffic.clients(seed)
    outcome = simulate(replace(serving, seed=seed), crowd, Log())
    columns = outcome.columns
    for row in range(len(columns["number"])):
        names = (outcome.names[int(columns[name][row])] for name in ("model", "tenant"))
        values = (int(columns[name][row]) for name in ("at_ns", "prompt_tokens", "said_tokens"))
        found.append((*names, *values))
    return sorted(found)


def of(tenant: str, rows):
    return [row for row in rows if row[1] == tenant]


def test_a_stream_asks_the_same_whatever_other_streams_there_are():
    alone = asked(ASKS)
    noisy = Stream("noise", "code", "night", clients=3, requests=40, **SMALL)
    together = asked(noisy, ASKS)
    assert of("search", together) == alone
    assert len(of("night", together)) == 40
    assert {row[0] for row in of("night", together)} == {"code"}
    assert asked(ASKS, seed=1) != alone


def test_two_runs_of_one_seed_are_one_and_what_is_asked_matters_not_to_what_is_drawn():
    slow = replace(SERVING, models=(replace(SERVING.models[0], replicas=1), SERVING.models[1]))
    assert asked(ASKS) == asked(ASKS)
    instants = [[row[2] for row in asked(ASKS, serving=one)] for one in (SERVING, slow)]
    assert instants[0] == instants[1]


def requests(stream: Stream, seed: int = 0) -> list[Request]:
    """All that a stream would ask by itself."""
    return list(stream.crowd(seed, "chat", Manners())._requests)


def test_prompts_share_their_beginning_and_nothing_else():
    first, second = islice(requests(replace(ASKS, shared_tokens=48)), 2)
    assert first.blocks[:3] == second.blocks[:3]
    assert not set(first.blocks[3:]) & set(second.blocks[3:])
    assert len(first.blocks) == 100 // 16
    other = requests(replace(ASKS, name="other", shared_tokens=48))
    assert not set(first.blocks) & set(other[0].blocks)


def test_a_stream_begins_and_ends_when_it_says_so():
    times = [one.at_s for one in requests(replace(ASKS, from_s=30.0, lasts_s=5.0))]
    assert 30 < times[0] < times[-1] < 35
    assert 5 < len(times) < 40
    bursts = replace(ASKS, profile=parse_profile("onoff:1:9"), requests=200)
    assert all(one.at_s % 10 < 1 for one in requests(bursts))


def test_turns_of_a_session_follow_each_other_and_find_what_was_said():
    talks = replace(ASKS, sessions=Sessions(Sizes("fixed", 4), 2.0), requests=10, shared_tokens=160)
    traffic = Traffic(Streams("w", (talks,)), "chat")
    assert talks.mean_per_s == 16.0
    outcome = simulate(SERVING, traffic.clients(0))
    assert outcome.requests == 40
    assert outcome.hit_rate > 0.5
    assert {outcome.names[int(name)] for name in outcome.columns["tenant"]} == {"search"}
    prompts = sorted(outcome.columns["prompt_tokens"].tolist())
    assert prompts == sorted([160 + 100 + 110 * turn for turn in range(4)] * 10)


def test_a_trace_is_a_stream_with_its_own_times_and_perhaps_another_tenant():
    recorded = Trace(
        "t", tuple(Request(float(n), 20, 5, tenant="theirs") for n in range(9)), 0, True
    )
    stream = Stream("old", trace=recorded, from_s=5.0, lasts_s=6.5)
    assert [one.at_s for one in requests(stream)] == [5.0 + n for n in range(7)]
    assert {one.tenant for one in requests(stream)} == {"theirs"}
    assert {one.tenant for one in requests(replace(stream, tenant="mine"))} == {"mine"}
    assert stream.mean_per_s == pytest.approx(9 / 8)


def test_faster_is_the_same_in_less_time():
    slow, fast = requests(ASKS), list(ASKS.crowd(0, "chat", Manners(), 2.0)._requests)
    assert [one.at_s / 2 for one in slow] == pytest.approx([one.at_s for one in fast])


def test_numbers_of_several_crowds_never_meet():
    crowds = [ASKS.crowd(0, "chat", Manners()), replace(ASKS, name="b").crowd(0, "chat", Manners())]
    outcome = simulate(SERVING, Several(crowds))
    numbers = outcome.columns["number"].tolist()
    assert sorted(numbers) == list(range(100))


def test_seeds_of_names_differ():
    assert len({seed_of(seed, name) for seed in range(50) for name in "abc"}) == 150


sizes = st.builds(lambda tokens: Sizes("fixed", tokens), st.integers(1, 200))
sessions = st.none() | st.builds(
    Sessions, st.just(Sizes("uniform", 1, 3)), st.sampled_from([0.0, 1.0])
)


@st.composite
def some_streams(draw):
    """One to three streams of any kind, for either model."""
    streams = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        how = draw(st.sampled_from(["rate", "clients", "sessions"]))
        streams.append(
            Stream(
                name,
                draw(st.sampled_from(["", "code"])),
                draw(st.sampled_from(["", "search"])),
                rate_per_s=0.0 if how == "clients" else draw(st.sampled_from([1.0, 30.0])),
                clients=draw(st.integers(1, 4)) if how == "clients" else 0,
                prompt=draw(sizes),
                output=draw(sizes),
                shared_tokens=draw(st.sampled_from([0, 40])),
                sessions=draw(sessions) if how == "sessions" else None,
                requests=draw(st.integers(1, 12)),
            )
        )
    return tuple(streams)


@settings(deadline=None, max_examples=40)
@given(some_streams(), st.integers(0, 3))
def test_any_streams_end_and_jumping_over_steps_changes_nothing(streams, seed):
    traffic = Traffic(Streams("w", streams), "chat")
    jumping = simulate(replace(SERVING, seed=seed), traffic.clients(seed))
    stepping = simulate(replace(SERVING, seed=seed, jumps=False), traffic.clients(seed))
    assert jumping.digest == stepping.digest
    numbers = jumping.columns["number"].tolist()
    assert len(set(numbers)) == len(numbers)
