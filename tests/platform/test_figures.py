"""Cells of tables become numbers to compare with: every form that the ledger has."""

import pytest

from ridgeline import ledger
from ridgeline.platform.figures import agrees, figure, is_near, rounds_to


@pytest.mark.parametrize(
    ("text", "truth", "sign", "numbers"),
    [
        ("1,433 L/min", None, "", (1433,)),
        ("2.275 x", None, "", (2.275,)),
        ("0.03941", None, "", (0.03941,)),
        ("1.22e-10 p-value", None, "", (1.22e-10,)),
        ("28.26 x (median)", None, "", (28.26,)),
        ("17 preemptions, 0 completed", None, "", (17, 0)),
        ("400 idle GPUs, 0 whole nodes", None, "", (400, 0)),
        ("4 of 20 concurrent", None, "", (4, 20)),
        ("18.25 $M", None, "", (18.25,)),
        ("17.52 M GPU-hours", None, "", (17.52,)),
        ("true (3 and 2 tasks)", True, "", (3, 2)),
        ("false (1.8 ms against 4.8 ms)", False, "", (1.8, 4.8)),
        ("true (1,200 free against 512 needed)", True, "", (1200, 512)),
        ("False", False, "", ()),
        ("33.33 min at C=30", None, "", (33.33, 30)),
        (">2x", None, ">", (2,)),
        ("<=0.10", None, "<=", (0.1,)),
        ("≥ 3", None, ">=", (3,)),
        ("~10x", None, "~", (10,)),
        ("several (>=3)", None, ">=", (3,)),
        (".97", None, "", (0.97,)),
        ("-3", None, "", (-3,)),
        ("16,384 GPUs", None, "", (16384,)),
        ("E4M3 tops out", None, "", ()),
        ("not stated", None, "", ()),
        ("truest", None, "", ()),
        ("", None, "", ()),
    ],
)
def test_a_cell_reads_as(text: str, truth: bool | None, sign: str, numbers: tuple[float, ...]):
    found = figure(text)
    assert (found.truth, found.sign, found.numbers) == (truth, sign, numbers)


def test_every_claim_has_a_figure_to_compare_with():
    assert [one.id for one in ledger.claims() if figure(one.computed).is_empty] == []


def test_printed_places_are_kept():
    assert figure("1.8 ms, 4.79, 1,200, 1.2e-9").places == pytest.approx((0.1, 0.01, 1, 1e-10))
    assert rounds_to(1.76, 1.8, 0.1)
    assert rounds_to(1.85, 1.8, 0.1)
    assert not rounds_to(1.86, 1.8, 0.1)


@pytest.mark.parametrize("text", ["1e309", ">1e400", "1e400 GB", "9" * 400, f"1e{'9' * 5000}"])
def test_a_number_beyond_all_bounds_is_infinite_and_near_to_nothing(text: str):
    told = figure(text)
    assert told.numbers == (float("inf"),)
    assert not is_near(1, told.numbers[0], 0.01)


def test_near_is_a_share_and_rounding_errors_are_nothing():
    assert is_near(101, 100, 0.01)
    assert not is_near(101.1, 100, 0.01)
    assert not is_near(1.24e-10, 1.22e-10, 0.01)
    assert is_near(2.2e-16, 2.78e-16, 0.01)


@pytest.mark.parametrize(
    ("ours", "stated", "holds"),
    [
        (2.2, ">2", True), (2, ">2", False), (2, ">=2", True), (1.99, ">=2", True),
        (1.9, ">=2", False), (4, "<5", True), (5, "<5", False), (5.04, "<=5", True),
        (5.1, "<=5", False), (9.95, "~10", True), (9, "~10", False), (9, "10", False),
    ],
)  # fmt: skip
def test_a_stated_bound_is_a_bound(ours: float, stated: str, holds: bool):
    assert agrees(ours, figure(stated), 0.01) is holds
