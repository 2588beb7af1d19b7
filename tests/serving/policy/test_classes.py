"""Classes: how one rises, and what cannot be set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.classes import CLASSES, NS, Classes, PriorityClass


def test_the_defaults() -> None:
    assert [(each.name, each.patience_s, each.promotion_s) for each in CLASSES.order] == [
        ("system", 30, 5),
        ("interactive", 30, 5),
        ("default", 60, 30),
        ("bulk", 300, 120),
    ]


@pytest.mark.parametrize(
    ("waited_s", "risen"),
    [(0, 3), (119.9, 3), (120, 2), (149, 2), (150, 1), (155, 0), (159, 0), (160, -1), (9999, -1)],
)
def test_bulk_rises_one_class_after_another(waited_s: float, risen: int) -> None:
    assert CLASSES.risen(3, int(waited_s * NS)) == risen


@given(st.integers(0, 3), st.integers(0, 10**12), st.integers(0, 10**12))
def test_whoever_waits_longer_never_stands_lower(rank: int, one_ns: int, other_ns: int) -> None:
    short, long = sorted((one_ns, other_ns))
    assert CLASSES.risen(rank, long) <= CLASSES.risen(rank, short) <= rank


@pytest.mark.parametrize(
    "order",
    [
        (),
        (PriorityClass("a", 0.1, 1, 1), PriorityClass("a", 0.1, 1, 1)),
        (PriorityClass("a", 0.6, 1, 1), PriorityClass("b", 0.5, 1, 1)),
        (PriorityClass("a", -0.1, 1, 1),),
        (PriorityClass("a", 0.1, 0, 1),),
        (PriorityClass("a", 0.1, 1, 0),),
    ],
)
def test_what_cannot_be_kept_is_refused(order: tuple[PriorityClass, ...]) -> None:
    with pytest.raises(ValueError, match=r"classes|floors|patience_s"):
        Classes(order)


def test_an_unknown_class_has_no_rank() -> None:
    with pytest.raises(KeyError):
        CLASSES.rank("urgent")
