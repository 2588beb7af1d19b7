"""Two regions that stand in for each other."""

import pytest

from ridgeline.serving.simulate.scenarios.two_regions import Regions, losses, safe_utilisation


@pytest.mark.proves("S139")
def test_two_regions_are_safe_to_half_each_and_at_60_percent_300_requests_wait_after_30_s():
    two = Regions(2, capacity_per_s=50)
    assert safe_utilisation(2) == 0.5
    half, more = losses((0.5, 0.6), two, 30.0)
    assert half.waiting == 0
    assert more.expected == pytest.approx(300)
    assert more.waiting == pytest.approx(300, rel=0.01)


def test_three_are_safe_to_two_thirds():
    assert safe_utilisation(3) == pytest.approx(2 / 3)
    safe, more = losses((0.66, 0.7), Regions(3), 30.0)
    assert safe.waiting == 0
    assert more.waiting == pytest.approx(more.expected, rel=0.02)
    assert more.waiting > 100
