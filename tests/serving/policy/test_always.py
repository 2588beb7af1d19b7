"""Guesses for everybody, up to a batch."""

import pytest

from ridgeline.serving.policy.always import Always
from ridgeline.serving.policy.speculation import Fared, Offer


def test_all_that_is_offered_is_run_up_to_the_batch_and_nothing_above_it():
    rule, offers = Always(off_above=2), [Offer(4, 0.1), Offer(0, 0.9)]
    assert rule.choose(2, offers) == [4, 0]
    assert rule.choose(3, offers) == [0, 0]
    assert [rule.is_off(running) for running in (2, 3)] == [False, True]
    assert not Always().is_off(10**6)


def test_it_asks_in_each_step_and_judges_as_the_switch_does():
    rule, fared = Always(), Fared()
    rule.judge(fared, 3, 3)
    rule.stepped(10, 1.0)
    assert rule.due()
    assert rule.chance(fared) > 0.5


def test_a_batch_is_not_negative():
    with pytest.raises(ValueError, match="-1"):
        Always(-1)
