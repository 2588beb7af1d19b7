"""Student's intervals."""

import pytest

from ridgeline.serving.simulate.intervals import Interval, interval


def test_an_interval_is_students():
    """Of 1, 2 and 3: the mean 2, and 4.303 x 1 / sqrt(3)."""
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(2.4843, rel=1e-3)
    assert (found.low, found.high) == (
        pytest.approx(-0.4843, rel=1e-3),
        pytest.approx(4.4843, rel=1e-3),
    )
    assert interval([5.0]) == Interval(5.0, None)
    assert (interval([5.0]).low, interval([5.0]).high) == (5.0, 5.0)
    assert not interval([5.0]).is_apart()
    assert interval([1.0, 1.1, 0.9]).is_apart()
