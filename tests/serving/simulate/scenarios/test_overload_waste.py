"""Little's law, and bursts that drain or do not."""

import pytest

from ridgeline.serving.simulate.scenarios.overload_waste import burst, in_flight


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


def test_the_threshold_is_one_less_the_load():
    assert burst(0.9, 0.085).drains
    assert not burst(0.9, 0.115).drains
