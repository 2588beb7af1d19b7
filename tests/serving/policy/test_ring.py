"""The hash ring: owners, what moves, and how unequal rings are."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.ring import PLACES, Ring, hash64, places, report

names = st.lists(st.text(max_size=8), min_size=1, max_size=12, unique=True)
keys = st.integers(0, PLACES - 1)


@given(names, keys)
def test_owners_begin_with_the_owner_and_name_everybody_once(known, key) -> None:
    ring = Ring(known, 20)
    found = list(ring.owners(key))
    assert found[0] == ring.owner(key)
    assert sorted(found) == sorted(known)


@given(names, st.text(min_size=9), st.lists(keys, max_size=50))
def test_a_newcomer_only_takes_keys_and_others_keep_theirs(known, newcomer, asked) -> None:
    before, after = Ring(known, 20), Ring([*known, newcomer], 20)
    assert all(after.owner(key) in (before.owner(key), newcomer) for key in asked)


@given(names, keys)
def test_without_its_owner_a_key_belongs_to_the_next_of_its_owners(known, key) -> None:
    ring = Ring(known, 20)
    owner, *others = ring.owners(key)
    if others:
        rest = [name for name in known if name != owner]
        assert Ring(rest, 20).owner(key) == others[0]


@given(names)
def test_shares_add_up_to_one(known) -> None:
    assert sum(Ring(known, 20).shares().values()) == pytest.approx(1)


def test_shares_are_what_random_keys_find() -> None:
    ring, chance = Ring(list("abcdefgh"), 10), random.Random(1)
    drawn = [ring.owner(chance.getrandbits(64)) for _ in range(40_000)]
    for name, share in ring.shares().items():
        assert drawn.count(name) / 40_000 == pytest.approx(share, abs=0.01)


def test_points_may_be_given_as_integers() -> None:
    ring = Ring(["low", "high"], 1, lambda name, _: [100 if name == "low" else 200])
    assert [ring.owner(key) for key in (0, 100, 101, 200, 201)] == [
        "low", "low", "high", "high", "low",
    ]  # fmt: skip


def test_hashes_are_the_same_in_every_process() -> None:
    assert hash64("r0") == 0x5A555ACCA70A3F25
    assert len(set(places("r0", 150))) == 150


def test_a_ring_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="owns nothing"):
        Ring([])


@pytest.mark.proves("S151")
def test_one_point_is_28_times_unequal_150_are_1_26_and_a_ninth_replica_moves_a_ninth() -> None:
    """Medians over many random rings of eight replicas."""
    assert report(points=1, rings=20_000).imbalance == pytest.approx(28, rel=0.05)
    many = report(points=150, rings=300)
    assert many.imbalance == pytest.approx(1.26, abs=0.02)
    assert many.moved == pytest.approx(0.111, abs=0.0015)
    assert many.moved_deviation == pytest.approx(0.009, abs=0.0015)
