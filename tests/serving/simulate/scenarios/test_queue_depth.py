"""Scaling by the queue's depth, and its five failures."""

import pytest

from ridgeline.physics.autoscale import climb_s as planned_climb_s
from ridgeline.quantity import value_of
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.simulate.scenarios.queue_depth import (
    CUT,
    EARLY,
    ELSEWHERE,
    EMPTY,
    OVERSHOOT,
    climb_s,
    cut,
    early,
    elsewhere,
    empty,
    overshoot,
)


@pytest.mark.proves("S189")
def test_each_of_the_five_failures_appears_and_vanishes_with_its_fix():
    assert (empty(EMPTY.broken), empty(EMPTY.fixed)) == (1, 0)
    assert (overshoot(OVERSHOOT.broken), overshoot(OVERSHOOT.fixed)) == (12, 3)
    assert early(EARLY.broken) > 4
    assert early(EARLY.fixed) < 0.2
    assert (elsewhere(ELSEWHERE.broken), elsewhere(ELSEWHERE.fixed)) == (1, 4)
    assert cut(CUT.broken) > 0
    assert cut(CUT.fixed) == 0


@pytest.mark.proves("S189")
def test_from_2_to_12_takes_ten_minutes_at_2_in_120_s():
    """Five pairs, the last one asked for after four periods; a start takes a period here."""
    settings = Settings(2, 12, 4.0, Step(2, 120.0))
    planned = value_of(planned_climb_s(2, 12, 2, 120.0))
    assert planned == 600
    assert climb_s(settings, 12, start_s=120.0) == pytest.approx(planned, rel=0.02)
    assert climb_s(settings, 12, start_s=0.0) == pytest.approx(480, rel=0.02)
