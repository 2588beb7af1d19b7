"""What the rows of bench/canary.py say of canaries, and how many may go back by chance."""

import sys
from math import comb
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

from canary import ALPHA, CHANCE, Canary, allowed, rows_of

PROMOTED = Canary(False, "nothing worse", 200, 100, 1.0)
BACK = Canary(True, "TTFT 1.30 times", 50, 100, 1.3)


@pytest.mark.parametrize("count", [1, 2, 6, 20, 100])
def test_more_than_allowed_is_no_chance_and_less_would_be(count: int) -> None:
    def more(than: int) -> float:
        chances = (
            comb(count, k) * ALPHA**k * (1 - ALPHA) ** (count - k)
            for k in range(than + 1, count + 1)
        )
        return sum(chances)

    assert more(allowed(count)) < CHANCE <= more(allowed(count) - 1)


def test_each_kind_is_held_to_its_end() -> None:
    right = {row.case: row for row in rows_of([PROMOTED] * 3, [BACK] * 3)}
    assert [row.ok for row in right.values() if row.target is not None] == [True, True]
    assert right["A/B: requests of the new version"].ratio == 0.5
    assert right["A/B: its TTFT beside the old one's"].ours == 1.3
    wrong = rows_of([BACK] * 3, [BACK, BACK, PROMOTED])
    assert [row.ok for row in wrong if row.target is not None] == [False, False]
