"""Load a cached beginning, or compute it: whichever is quicker, part by part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.tiers import Part, fetch

times = st.floats(0, 100)
parts = st.lists(
    st.builds(Part, st.sampled_from(["host", "disk"]), st.integers(1, 9), times, times)
)


def way_s(given_parts, count):
    loads = [part.load_s for part in given_parts[:count]]
    return max(loads, default=0.0) + sum(part.recompute_s for part in given_parts[count:])


@given(parts)
def test_no_number_of_parts_is_quicker(some):
    chosen = fetch(some)
    assert all(way_s(some, chosen.parts) <= way_s(some, count) for count in range(len(some) + 1))


@pytest.mark.parametrize(("load_s", "loaded"), [(0.9, 1), (1.0, 0), (1.1, 0)])
def test_a_part_is_loaded_where_that_is_quicker(load_s, loaded):
    chosen = fetch([Part("host", 100, load_s, 1.0)])
    assert chosen.parts == loaded
    assert "host" in chosen.reason


def test_tiers_load_together_and_a_slow_end_is_computed():
    near, far = Part("host", 100, 0.1, 1.0), Part("disk", 100, 5.0, 1.0)
    assert fetch([near, far]).parts == 1
    assert fetch([near, Part("disk", 100, 0.9, 1.0)]).parts == 2
    assert fetch([far, near]).parts == 0, "what is behind cannot be had without it"


def test_rules_to_compare_with_always_do_the_one():
    part = Part("host", 100, 9.0, 1.0)
    assert fetch([part], "load").parts == 1
    assert fetch([Part("host", 100, 0.1, 1.0)], "recompute").parts == 0
