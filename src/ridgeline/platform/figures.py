"""Numbers as tables tell them: `"1,433 L/min"`, `"true (3 and 2 tasks)"`, `"0.97 of rows"`.

A figure is what can be compared with a computed value: a truth, the numbers in the order in which
they stand, and the sign before the first (`>2x`, `<=0.10`, `~10x`). Words are kept and not judged.
A number beyond all bounds (`1e400`) is infinite here, and near to nothing.
"""

import math
import re
from dataclasses import dataclass

#: Below this two numbers are the same: what is left of them is the rounding of doubles.
ROUNDING = 1e-15


@dataclass(frozen=True, slots=True)
class Figure:
    """`numbers` as written, `places` the size of each one's last printed digit."""

    truth: bool | None
    sign: str
    numbers: tuple[float, ...]
    places: tuple[float, ...]
    text: str

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compare with."""
        return self.truth is None and not self.numbers


_FIGURE = re.compile(
    r"(?<![\w.,])(?P<sign>>=|<=|[><~]|≥|≤)?\s*"
    r"(?P<number>[-+]?(?=\.?\d)(?:\d{1,3}(?:,\d{3})+|\d*)(?P<digits>\.\d+)?(?P<power>[eE][-+]?\d+)?)"
)
_SIGNS = {"≥": ">=", "≤": "<="}


def figure(text: str) -> Figure:
    """Read a cell; a cell without a number or a truth gives an empty figure."""
    words = text.strip().lower()
    truth = {"true": True, "false": False}.get(re.split(r"\W", words, maxsplit=1)[0])
    sign = ""
    numbers: list[float] = []
    places: list[float] = []
    for match in _FIGURE.finditer(text):
        written = match["number"]
        if not numbers:
            sign = _SIGNS.get(match["sign"] or "", match["sign"] or "")
        power = float(f"1{match['power'] or 'e0'}")
        numbers.append(float(written.replace(",", "")))
        places.append(10.0 ** -max(len(match["digits"] or ".") - 1, 0) * power)
    return Figure(truth, sign, tuple(numbers), tuple(places), text.strip())


def is_near(ours: float, theirs: float, tolerance: float) -> bool:
    """Whether two numbers are the same within a share of the second."""
    if not math.isfinite(theirs):
        return False
    return abs(ours - theirs) <= max(tolerance * abs(theirs), ROUNDING)


def rounds_to(ours: float, theirs: float, place: float) -> bool:
    """Whether a number, rounded as the other was printed, is that one."""
    return abs(ours - theirs) <= place * (0.5 + 1e-9)


def agrees(ours: float, figure: Figure, tolerance: float) -> bool:
    """Whether a number is what a figure states, its sign and a tolerance taken into account."""
    theirs = figure.numbers[0]
    if figure.sign == ">":
        return ours > theirs
    if figure.sign == "<":
        return ours < theirs
    is_beyond = (figure.sign == ">=" and ours > theirs) or (figure.sign == "<=" and ours < theirs)
    return is_beyond or is_near(ours, theirs, tolerance)
