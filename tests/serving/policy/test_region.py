"""Which region answers a request."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.region import Reachable, region_for

NEAR = Reachable("eu", 0.0, load=5, slots=10)
FAR = Reachable("us", 0.08, load=0, slots=10)


def test_the_nearest_with_a_free_slot():
    assert region_for([FAR, NEAR]).region == "eu"
    full = Reachable("eu", 0.0, load=10, slots=10)
    chosen = region_for([full, FAR])
    assert chosen.region == "us"
    assert "1 nearer ones are full" in chosen.reason


def test_where_all_are_full_the_one_with_the_least_load_for_its_slots():
    small = Reachable("eu", 0.0, load=12, slots=10)
    large = Reachable("us", 0.08, load=22, slots=20)
    assert region_for([small, large]).region == "us"


def test_residency_is_kept_whatever_happens():
    full = Reachable("eu", 0.0, load=99, slots=1)
    assert region_for([full, FAR], frozenset({"eu"})).region == "eu"
    lost = Reachable("eu", is_up=False)
    chosen = region_for([lost, FAR], frozenset({"eu"}))
    assert chosen.region is None
    assert chosen.reason == "no region of eu is up"


def test_one_without_a_ready_replica_is_the_last_resort():
    starting = Reachable("eu", 0.0)
    crowded = Reachable("us", 0.08, load=30, slots=10)
    assert region_for([starting, crowded]).region == "us"
    assert region_for([starting]).region == "eu"


@st.composite
def reachable(draw) -> Reachable:
    name = draw(st.sampled_from("abcd"))
    load, slots = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    return Reachable(name, draw(st.floats(0, 1)), load, slots, draw(st.booleans()))


@given(
    st.lists(reachable(), unique_by=lambda one: one.name),
    st.one_of(st.none(), st.frozensets(st.sampled_from("abcd"))),
)
def test_it_is_up_and_allowed_and_full_only_where_all_are(regions, residency):
    allowed = {
        one.name: one
        for one in regions
        if one.is_up and (residency is None or one.name in residency)
    }
    chosen = region_for(regions, residency)
    assert chosen.reason
    assert (chosen.region is None) == (not allowed)
    if chosen.region is not None:
        one = allowed[chosen.region]
        assert one.load < one.slots or all(each.load >= each.slots for each in allowed.values())
