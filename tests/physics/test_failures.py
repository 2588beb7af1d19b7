"""Young's interval against a search for the interval that loses least."""

import numpy as np
import pytest

from ridgeline.physics.failures import lost_share_at_optimum, mean_gap_s, optimal_interval_s


def test_419_stops_in_54_days_are_three_hours_apart():
    assert mean_gap_s(54 * 86400, 419) / 3600 == pytest.approx(3.093, rel=0.001)


@pytest.mark.parametrize("write_s", [5.0, 60.0])
def test_no_other_interval_loses_less(write_s: float):
    mtbf = mean_gap_s(54 * 86400, 419)
    intervals = np.linspace(60, 7200, 200_000)
    lost = write_s / intervals + intervals / (2 * mtbf)
    assert optimal_interval_s(write_s, mtbf) == pytest.approx(intervals[lost.argmin()], rel=0.001)
    assert lost_share_at_optimum(write_s, mtbf) == pytest.approx(lost.min(), rel=0.001)
