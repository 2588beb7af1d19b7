"""A rolling update as a Deployment's controller does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.autoscale import surge_pods, unavailable_pods
from ridgeline.quantity import value_of
from ridgeline.serving.policy.rolling import Rolling, There, roll


@pytest.mark.parametrize(
    ("replicas", "most", "least"), [(4, 5, 3), (3, 4, 3), (1, 2, 1), (8, 10, 6)]
)
def test_shares_are_rounded_up_for_more_and_down_for_fewer(replicas, most, least):
    how = Rolling()
    assert (how.most(replicas), how.least_ready(replicas)) == (most, least)
    assert how.most(replicas) - replicas == value_of(surge_pods(replicas))
    assert replicas - how.least_ready(replicas) == value_of(unavailable_pods(replicas))


def test_where_both_round_to_nothing_one_may_be_missing():
    how = Rolling(surge=0.0, unavailable=0.25)
    assert (how.most(3), how.least_ready(3)) == (3, 2)
    with pytest.raises(ValueError, match="cannot begin"):
        Rolling(0.0, 0.0)


def test_four_by_hand():
    """One more and one fewer at once; then as the new ones get ready."""
    how = Rolling()
    first = roll(4, There(4, 4), There(0, 0), how)
    assert (first.old, first.new) == (3, 1)
    second = roll(4, There(3, 3), There(1, 0), how)
    assert (second.old, second.new) == (3, 2), "one may be missing, and is"
    stays = roll(4, There(3, 3), There(2, 0), how)
    assert (stays.old, stays.new) == (3, 2)
    assert stays.reason == "waits: 2 new ones are not ready, and 3 of all must be"
    third = roll(4, There(3, 3), There(2, 2), how)
    assert (third.old, third.new) == (1, 2)


def test_old_ones_that_are_not_ready_go_first():
    sizes = roll(4, There(4, 2), There(1, 0), Rolling())
    assert (sizes.old, sizes.new) == (3, 1)


@given(
    st.integers(1, 12),
    st.sampled_from([(0.25, 0.25), (0.0, 0.25), (0.25, 0.0), (1.0, 0.0), (0.5, 1.0)]),
    st.randoms(use_true_random=False),
)
def test_it_comes_to_its_end_within_its_bounds(replicas, shares, chance):
    """Whatever becomes ready when, if all do in the end."""
    how = Rolling(*shares)
    old, new = There(replicas, replicas), There(0, 0)
    for _ in range(4 * replicas + 4):
        sizes = roll(replicas, old, new, how)
        assert sizes.reason
        assert sizes.old + sizes.new <= how.most(replicas)
        assert sizes.new <= replicas
        ready = min(old.ready, sizes.old)
        assert ready + new.ready >= how.least_ready(replicas)
        old = There(sizes.old, ready)
        new = There(sizes.new, chance.randint(new.ready, sizes.new))
        if chance.random() < 0.5:
            new = There(sizes.new, sizes.new)
    for _ in range(2 * replicas):
        sizes = roll(replicas, old, new, how)
        old, new = There(sizes.old, min(old.ready, sizes.old)), There(sizes.new, sizes.new)
    assert (old.asked, new.asked) == (0, replicas)
