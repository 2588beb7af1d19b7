"""A caller stays with its version, and a growing weight moves callers one way only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.split import Split, version_for


@given(st.text(max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_a_growing_weight_moves_callers_to_the_new_version_only(caller, one, other) -> None:
    low, high = sorted((one, other))
    before = version_for(Split("r", "old", "new", low), caller)
    after = version_for(Split("r", "old", "new", high), caller)
    assert (before, after) != ("new", "old")
    assert version_for(Split("r", "old", "new", 0.0), caller) == "old"
    assert version_for(Split("r", "old", "new", 1.0), caller) == "new"


@pytest.mark.parametrize("weight", [0.05, 0.25, 0.5])
def test_its_share_of_the_callers_is_the_weight(weight) -> None:
    split = Split("r", "old", "new", weight)
    got = sum(version_for(split, f"caller {number}") == "new" for number in range(20_000))
    assert got / 20_000 == pytest.approx(weight, abs=0.01)


def test_another_rollout_begins_with_other_callers() -> None:
    ones, others = (
        {n for n in range(1000) if version_for(Split(name, "old", "new", 0.1), str(n)) == "new"}
        for name in ("one", "other")
    )
    assert len(ones & others) < len(ones) / 2


def test_a_weight_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Split("r", "old", "new", 1.5)
