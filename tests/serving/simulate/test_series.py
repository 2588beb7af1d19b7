"""Looking at a platform over time changes nothing, and jumps change nothing of what is seen."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from worlds import clients, engine, model, servings

from ridgeline.serving.fake.timing import Machine, Plain, machine
from ridgeline.serving.simulate import series as series_module
from ridgeline.serving.simulate.clients import ClosedLoop, OpenLoop
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request


def seen(serving, clients_):
    """A run and its series."""
    series = Series()
    return simulate(serving, clients_, series=series), series


@given(servings(), clients())
@settings(deadline=None, max_examples=50)
def test_looking_changes_nothing(serving, make):
    plain, (looked, _) = simulate(serving, make()), seen(serving, make())
    assert (plain.digest, plain.events, plain.lasted_s) == (
        looked.digest,
        looked.events,
        looked.lasted_s,
    )
    for name, column in plain.columns.items():
        assert np.array_equal(column, looked.columns[name]), name


@given(servings(), clients())
@settings(deadline=None, max_examples=50)
def test_what_is_seen_is_the_same_with_jumps_and_without(serving, make):
    _, jumped = seen(serving, make())
    _, stepped = seen(replace(serving, jumps=False), make())
    for kind in jumped.kinds:
        one, other = jumped.looks(kind), stepped.looks(kind)
        assert np.array_equal(one.at_s, other.at_s)
        assert np.array_equal(one.there_s, other.there_s)
        for name in one.seen:
            assert np.array_equal(one.seen[name], other.seen[name]), name
        for name in one.counts_s:
            assert np.allclose(one.counts_s[name], other.counts_s[name], rtol=0, atol=1e-8), name


@given(servings(), clients())
@settings(deadline=None, max_examples=50)
def test_all_time_that_engines_are_busy_is_told_apart(serving, make):
    outcome, series = seen(serving, make())
    told = sum(sum(series.looks(kind).counts_s.values())[-1] for kind in series.kinds)
    assert told == pytest.approx(sum(one.busy_s for one in outcome.replicas), abs=1e-6)
    for kind in series.kinds:
        looks = series.looks(kind)
        assert (np.diff(looks.there_s) >= 0).all()
        assert ((looks.used >= 0) & (looks.used <= 1)).all()


def test_a_longer_run_takes_no_more_room():
    requests = [Request(number * 40.0, 100, 20) for number in range(200)]
    _, series = seen(Serving((model(),)), OpenLoop(requests, "chat"))
    looks = series.looks("chat")
    assert series_module._MOST / 2 <= len(looks.at_s) <= series_module._MOST + 1
    steps = np.diff(looks.at_s)[:-1]
    assert (steps == steps[0]).all(), "the last one may be shorter"


def test_a_machine_of_the_catalog_reads_when_it_decodes_and_computes_prompts():
    on = machine("llama-3.1-8b", "h100-sxm")
    one = model(engine=engine(machine=on, max_batched_tokens=8192))
    for prompt, output, most in ((16, 400, "bandwidth"), (8000, 1, "compute")):
        requests = [Request(0.0, prompt, output) for _ in range(20)]
        _, series = seen(Serving((one,)), ClosedLoop(requests, "chat", 4))
        counts = {name: sums[-1] for name, sums in series.looks("chat").counts_s.items()}
        assert max(counts, key=counts.get) == most


def test_who_is_short_of_blocks_is_bound_by_them_and_of_seats_by_seats():
    few = Machine(Plain(0.01, 0.0, 1e9), 40 * 16)
    requests = [Request(0.0, 100, 200) for _ in range(20)]
    _, short = seen(Serving((model(engine=engine(machine=few)),)), OpenLoop(requests, "chat"))
    looks = short.looks("chat")
    assert looks.counts_s["kv"][-1] > 0.5 * looks.there_s[-1]
    assert looks.used.max() > 0.9
    one = model(engine=engine(max_seqs=2), slots=64)
    _, seats = seen(Serving((one,)), OpenLoop(requests, "chat"))
    assert seats.looks("chat").counts_s["seats"][-1] > 0.8 * seats.looks("chat").there_s[-1]
