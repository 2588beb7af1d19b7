"""A new version where all accelerators are taken."""

import pytest

from ridgeline.physics.autoscale import surge_pods, unavailable_pods
from ridgeline.quantity import value_of
from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.simulate.scenarios.scarce_rollout import BLUE_GREEN, updates


@pytest.mark.proves("S194")
def test_four_replicas_free_an_accelerator_and_get_through_a_full_pool_three_pend_to_600_s():
    four, three = updates([(4, 0), (3, 0)], Rolling())
    freed = [value_of(unavailable_pods(count)) for count in (4, 3)]
    assert freed == [1, 0]
    assert [value_of(surge_pods(count)) for count in (4, 3)] == [1, 1]
    assert four.stuck_s is None
    assert four.done_s == pytest.approx(4 * 90, rel=0.05), "one after the other"
    assert four.most_devices == 4
    assert three.done_s is None
    assert three.stuck_s == pytest.approx(600, abs=2)
    assert four.cut == three.cut == 0


@pytest.mark.proves("S194")
def test_blue_green_needs_twice_the_accelerators():
    full, room = updates([(4, 0), (4, 4)], BLUE_GREEN)
    assert full.stuck_s == pytest.approx(600, abs=2)
    assert room.most_devices == 2 * 4
    assert room.done_s is not None


def test_our_own_rollout_says_at_once_that_there_is_no_room():
    full, room = updates([(4, 0), (4, 4)], Plan())
    assert full.said == "back: there is no room for a replica of it"
    assert full.most_devices == 4
    assert room.done_s is not None
    assert room.cut == 0
