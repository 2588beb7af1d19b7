"""Speculation across a fleet: free to 59, break-even at 164, and an alarm where no error is."""

import pytest

from ridgeline.serving.policy.acceptance_alarm import Expected
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.scenarios.fleet_speculation import (
    formula,
    gains,
    silent_drop,
    simulated,
    weights_only,
)

ON, GUESSING = weights_only("h100-sxm"), Guessing(0.7, drafts=4)


@pytest.mark.proves("S145")
def test_four_guesses_at_0_7_are_free_to_a_batch_of_59_and_break_even_at_164():
    law = formula(ON, GUESSING)
    assert int(law.free_batch) == 59
    assert round(law.break_even_batch) == 164
    assert law.break_even_batch == pytest.approx(163.7, rel=0.002)  # the claim's ridge is rounded
    run = simulated(ON, GUESSING)
    assert run.free_batch == 59
    assert run.break_even_batch == pytest.approx(164, rel=0.02)


@pytest.mark.proves("S145")
def test_a_silent_drop_of_acceptance_alarms_on_every_replica_and_health_does_not():
    alarms, (before_s, after_s) = silent_drop(ON, 0.7, 0.4, expected=Expected(0.7))
    assert sorted(one.replica for one in alarms) == [f"chat-{number}" for number in range(4)]
    assert all(30.0 < one.at_s < 32.0 for one in alarms), "within two seconds"
    assert after_s > 1.5 * before_s, "what nobody would have been told"
    healthy, _ = silent_drop(ON, 0.7, 0.7, expected=Expected(0.7))
    assert not healthy


@pytest.mark.proves("S145")
def test_the_engines_own_switch_never_loses_what_guesses_in_every_step_lose():
    for batch, every, measured in gains(ON, GUESSING, (16, 164, 300)):
        assert measured > 0.99, batch
        assert measured > every or batch < 59
