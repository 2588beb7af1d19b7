"""Little's law, and bursts that drain or do not."""

import pytest

from ridgeline.serving.simulate.scenarios.overload_waste import (
    burst,
    in_flight,
    left,
    stays_at,
    waste_of,
)


@pytest.mark.proves("S098")
def test_50_a_second_for_20_s_are_1000_in_flight():
    simulated, expected = in_flight(50.0, 20.0)
    assert expected == 1000
    assert simulated == pytest.approx(1000, rel=0.01)


@pytest.mark.proves("S098")
def test_at_90_percent_a_burst_does_not_drain_once_waste_is_over_10_percent():
    assert burst(0.9, 0.0).drains, "a plain queue"
    assert burst(0.9, 0.05).drains
    kept = burst(0.9, 0.12)
    assert not kept.drains
    assert kept.after > kept.before + 30, "it grows"
    assert burst(0.7, 0.12).drains


@pytest.mark.proves("S098")
@pytest.mark.parametrize("retries", [1, 2])
def test_at_90_percent_clients_who_ask_again_keep_a_burst_alive_once_they_waste_10_percent(retries):
    share = (1 / 0.9 - 1) / retries
    assert waste_of(share, retries) == pytest.approx(0.10)
    assert left(0.9, 0.95 * share, retries).drains
    assert not left(0.9, 1.05 * share, retries).drains


def test_at_80_percent_they_may_waste_20():
    assert waste_of(0.25, 1) == pytest.approx(0.20)
    assert left(0.8, 0.95 * 0.25).drains
    assert not left(0.8, 1.05 * 0.25).drains


@pytest.mark.parametrize(("share", "retries"), [(2 / 9, 1), (1 / 9, 2)])
def test_their_overload_stays_where_just_the_capacity_is_asked_for(share, retries):
    assert left(0.9, share, retries).after == pytest.approx(stays_at(0.9, share, retries), rel=0.03)


def test_who_leaves_for_good_does_no_harm():
    assert left(0.9, 0.5, 0).drains


def test_the_threshold_is_one_less_the_load():
    assert burst(0.9, 0.085).drains
    assert not burst(0.9, 0.115).drains
