"""Traces: order, and clocks that tick slowly."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.workload.request import Request
from ridgeline.workload.trace import Trace, from_zero, is_in_order, spread_ticks

ticks = st.lists(st.integers(0, 20), min_size=1, max_size=60).map(sorted)


def at(times_s):
    return [Request(float(time_s), number + 1, 1) for number, time_s in enumerate(times_s)]


@given(ticks)
def test_a_spread_request_stays_in_its_tick_and_in_its_place(times):
    requests = at(3 * time for time in times)
    spread = spread_ticks(requests)
    assert [one.prompt_tokens for one in spread] == [one.prompt_tokens for one in requests]
    assert is_in_order(spread)
    instants = sorted({one.at_s for one in requests})
    step_s = min((b - a for a, b in pairwise(instants)), default=0.0)
    for before, after in zip(requests, spread, strict=True):
        assert after.at_s == before.at_s or before.at_s < after.at_s < before.at_s + step_s


def test_spreading_is_drawn_from_one_seed():
    requests = at([0, 0, 0, 3, 3, 9])
    spread = spread_ticks(requests)
    assert spread == spread_ticks(requests)
    gaps = [b.at_s - a.at_s for a, b in pairwise(spread)]
    assert len(set(gaps)) == len(gaps)  # not evenly


def test_a_fine_clock_and_one_without_ties_are_left_alone():
    for times in ([0, 0, 0.04], [0, 3, 9], [5, 5, 5]):
        requests = at(times)
        assert spread_ticks(requests) is requests


def test_times_begin_at_zero_and_go_faster():
    assert [one.at_s for one in from_zero(at([10, 14]), 2.0)] == [0.0, 2.0]


def test_models_are_told_in_order_and_once():
    asked = [Request(0.0, 1, 1, model=name) for name in ("b", "", "a", "b")]
    assert Trace("t", tuple(asked), 0, timed=True).models == ("b", "a")
