"""Three times the load at once, and a minute until a replica helps."""

import pytest

from ridgeline.serving.policy.scale_rules import RULES
from ridgeline.serving.simulate.scenarios.step_in_load import TUNED, USUAL, played


@pytest.mark.proves("S063")
def test_the_tuned_five_settings_keep_drops_under_a_percent_on_a_3x_step_with_a_60_s_boot():
    tuned, usual = played(TUNED), played(USUAL)
    assert tuned.dropped < 0.01
    assert tuned.most >= 12
    assert usual.dropped > 0.02
    assert usual.idle < tuned.idle, "room for a step is idle before it"


def test_rules_that_wait_before_they_grow_drop_more():
    """Ray wishes for 30 s first, and KEDA sees nobody who waits in front of the replicas."""
    for name in ("ray", "keda"):
        assert played(TUNED, RULES[name]).dropped > 0.01
