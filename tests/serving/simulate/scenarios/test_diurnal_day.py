"""A day's peak, simulated beside the arithmetic."""

import pytest

from ridgeline.serving.simulate.scenarios.diurnal_day import (
    fixed,
    recoverable,
    scaled,
    trough_over_mean,
)


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
    assert (whole.fewest, following.fewest) == (10, 1), "nine for others' work at the trough"
    saved = 1 - following.replica_hours / whole.replica_hours
    most = recoverable(3.0, trough_over_mean(3.0), 600.0)
    assert most == pytest.approx(0.66, abs=0.005)
    assert 0.4 < saved < most


@pytest.mark.slow
def test_a_larger_fleet_wins_back_more_of_what_the_arithmetic_says():
    """40 replicas in place of ten: whole ones and chance matter less."""
    whole, following = fixed(3.0, 0.7, 1.4), scaled(3.0, 0.7, 600.0, 1.4)
    saved = 1 - following.replica_hours / whole.replica_hours
    assert 0.54 < saved < recoverable(3.0, trough_over_mean(3.0), 600.0)
    assert following.answered > 0.999
