"""How far a mean of a few values may be off: Student's intervals, 95 %."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

#: Student's t, 97.5 %, for 1, 2, ... degrees of freedom; from 30 on it is about the normal's.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
)  # fmt: skip
_T_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and how far the true one may be on either side; None of one value."""

    mean: float
    half: float | None

    @property
    def low(self) -> float:
        """Its lower end."""
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        """Its upper end."""
        return self.mean + (self.half or 0.0)

    def is_apart(self) -> bool:
        """Whether it does not hold 0."""
        return self.half is not None and abs(self.mean) > self.half


def interval(values: Sequence[float]) -> Interval:
    """Of independent values."""
    if len(values) < 2:
        return Interval(values[0], None)
    freedom = len(values) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else _T_NORMAL
    return Interval(fmean(values), t * stdev(values) / sqrt(len(values)))
