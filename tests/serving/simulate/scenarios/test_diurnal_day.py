"""A day's peak, simulated beside the arithmetic."""

import pytest

from ridgeline.serving.simulate.scenarios.diurnal_day import fixed, scaled


@pytest.mark.proves("S093")
def test_three_times_the_mean_is_33_percent_busy_and_23_with_70_percent_headroom():
    bare, roomy = fixed(3.0, 1.0), fixed(3.0, 0.7)
    assert bare.utilisation == pytest.approx(1 / 3, abs=0.01)
    assert roomy.utilisation == pytest.approx(0.7 / 3, abs=0.01)
    assert roomy.answered == 1.0
    assert roomy.ttft_p99_s < bare.ttft_p99_s


def test_a_fleet_that_follows_wins_hours_back_and_answers_all():
    whole, following = fixed(3.0, 0.7), scaled(3.0, 0.7, start_s=600.0)
    assert following.replica_hours < 0.6 * whole.replica_hours
    assert following.utilisation > 1.6 * whole.utilisation
    assert following.answered > 0.999
