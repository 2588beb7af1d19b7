"""Devices of a pool: first come, first served, and none is lost."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.simulate.devices import Devices


def test_who_waits_for_many_holds_up_who_wants_few():
    pool, got = Devices(2), []
    one = pool.take(1, lambda: got.append("one"))
    two = pool.take(2, lambda: got.append("two"))
    pool.take(1, lambda: got.append("three"))
    assert got == ["one"]
    pool.give(one)
    assert got == ["one", "two"]
    pool.give(two)
    assert got == ["one", "two", "three"]
    assert pool.free == 1


def test_who_waits_no_longer_holds_up_nobody():
    pool, got = Devices(1), []
    waiting = pool.take(2, lambda: got.append("two"))
    pool.take(1, lambda: got.append("one"))
    pool.give(waiting)
    assert got == ["one"]


@given(
    st.integers(1, 8), st.lists(st.integers(1, 8), min_size=1), st.randoms(use_true_random=False)
)
def test_what_is_given_back_is_there_again(count, wishes, chance):
    pool = Devices(count)
    claims = [pool.take(one, lambda: None) for one in wishes]
    assert sum(one.count for one in claims if one.granted) == count - pool.free
    chance.shuffle(claims)
    for place, claim in enumerate(claims):
        pool.give(claim)
        held = sum(one.count for one in claims[place + 1 :] if one.granted)
        assert held == count - pool.free
    assert pool.free == count
