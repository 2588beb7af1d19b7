"""The spread of a set of measurements: mean, percentiles, worst."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import floor

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a measure is spread over `count` values, in the unit of the values."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    def to_dict(self) -> dict[str, float]:
        """The same as plain numbers, for JSON."""
        return asdict(self)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the ascending `ordered` values lie.

    Linear interpolation between the closest ranks, rank = percent / 100 * (n - 1): definition 7
    of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996, numpy's default.
    """
    assert ordered, "a percentile of nothing"
    rank = percent / 100 * (len(ordered) - 1)
    below = floor(rank)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low + (high - low) * (rank - below)


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of `values` in any order; None where there are none."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in PERCENTILES)
    mean = sum(ordered) / len(ordered)
    return Spread(len(ordered), mean, p50, p90, p95, p99, ordered[-1])
