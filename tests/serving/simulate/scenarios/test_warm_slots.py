"""Serverless functions on warm slots."""

import pytest

from ridgeline.serving.simulate.scenarios.warm_slots import mean_slots, served, slots_for

WARM_S, PROMISE_S = 0.8, 1.0


@pytest.mark.proves("S136")
def test_two_starts_a_second_with_a_30_s_refill_need_60_and_p99_is_under_the_promise():
    assert mean_slots(2.0, 30.0) == 60
    slots = slots_for(2.0, 30.0, 0.99)
    pool = served(slots, 2.0, 30.0, warm_s=WARM_S)
    assert pool.in_refill == pytest.approx(60, rel=0.03)
    assert pool.p99_start_s <= PROMISE_S
    assert pool.late < 0.012


def test_with_no_more_than_the_mean_most_starts_are_late():
    pool = served(60, 2.0, 30.0, warm_s=WARM_S)
    assert pool.late > 0.4
    assert pool.p99_start_s > PROMISE_S
