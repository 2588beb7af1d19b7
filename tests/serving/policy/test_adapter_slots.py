"""Slots for adapters: who is used stays, the longest unused gives way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.adapter_slots import AdapterSlots


def test_the_longest_unused_gives_way_and_who_is_used_stays():
    slots = AdapterSlots(2)
    assert [slots.take(name).kind for name in ("a", "b", "a")] == ["loads", "loads", "here"]
    assert slots.take("c").kind == "waits"
    slots.give("b")
    seat = slots.take("c")
    assert (seat.kind, seat.evicts) == ("loads", "b")
    assert slots.loaded == {"a", "c"}
    slots.give("a")
    assert slots.take("d").kind == "waits", "a has another user"
    slots.give("a")
    assert slots.take("d").evicts == "a"


@given(st.integers(1, 3), st.lists(st.tuples(st.booleans(), st.sampled_from("abcde")), max_size=60))
def test_never_more_than_slots_and_never_without_a_user_who_is_in(count, told):
    slots, users = AdapterSlots(count), []
    for takes, name in told:
        if takes:
            seat = slots.take(name)
            assert seat.evicts not in users
            assert (seat.kind == "waits") == (name not in slots.loaded)
            users += [name] if seat.kind != "waits" else []
        elif name in users:
            users.remove(name)
            slots.give(name)
        assert len(slots.loaded) <= count
        assert slots.in_use == len(set(users))
        assert set(users) <= slots.loaded


def test_no_slots_hold_nothing():
    with pytest.raises(ValueError, match="0 slots"):
        AdapterSlots(0)
