"""What a trace is like: how much, how fast, how bursty, how large, how much of it was said before.

Pure arithmetic over its requests. Percentiles are values that really occurred (nearest rank).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.workload.request import Request
from ridgeline.workload.reuse import lru_curve
from ridgeline.workload.trace import Trace

_SHARES = (0.5, 0.9, 0.99)
_PIECES = 24  # of the whole time, for the rate
_CACHES = 8  # round sizes that the hit rate is told of, and the one that is enough


@dataclass(frozen=True, slots=True)
class Spread:
    """A column of numbers: mean, percentiles, largest."""

    mean: float
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second: on average, of the whole's pieces in order, and in the worst second.

    `cv` is the coefficient of variation of the gaps, 1 for Poisson arrivals. `dispersion` is the
    variance over the mean of the counts in a minute (in a second of what lasts no ten minutes):
    1 for Poisson, more where bursts or a day's curve make counts differ.
    """

    per_s: float
    pieces_per_s: tuple[float, ...]
    worst_second: int
    cv: float
    dispersion: float


@dataclass(frozen=True, slots=True)
class Reuse:
    """Prompt tokens whose blocks came before: with no limit, and by the blocks of one LRU cache."""

    block_tokens: int
    unlimited: float
    by_blocks: tuple[tuple[int, float], ...]
    distinct_blocks: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """All of it. `rate` is None of a trace without times, `reuse` of one without blocks."""

    name: str
    format: str
    requests: int
    duration_s: float
    prompt_tokens: Spread
    output_tokens: Spread
    rate: Rate | None
    reuse: Reuse | None
    tenants: dict[str, int]
    models: dict[str, int]
    sessions: int
    turns: Spread | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def statistics(trace: Trace) -> Statistics:
    """Of a whole trace."""
    requests = trace.requests
    turns = Counter(one.session for one in requests if one.session)
    return Statistics(
        trace.name,
        trace.format,
        len(requests),
        requests[-1].at_s,
        _spread([one.prompt_tokens for one in requests]),
        _spread([one.output_tokens for one in requests]),
        _rate(np.array([one.at_s for one in requests])) if trace.timed else None,
        _reuse(requests, trace.block_tokens) if trace.block_tokens else None,
        _named(one.tenant for one in requests),
        _named(one.model for one in requests),
        len(turns),
        _spread(list(turns.values())) if turns else None,
        trace.notes,
    )


def too_long(trace: Trace, context_tokens: int) -> int:
    """How many requests need a longer context, with their whole answer."""
    return sum(one.prompt_tokens + one.output_tokens > context_tokens for one in trace.requests)


def _named(names: Any) -> dict[str, int]:
    """How many requests each has, the most first."""
    return dict(Counter(name for name in names if name).most_common())


def _spread(values: Sequence[int]) -> Spread:
    ordered = sorted(values)
    p50, p90, p99 = (float(ordered[ceil(share * len(ordered)) - 1]) for share in _SHARES)
    return Spread(sum(ordered) / len(ordered), p50, p90, p99, float(ordered[-1]))


def _rate(at_s: NDArray[np.float64]) -> Rate | None:
    lasts_s = float(at_s[-1])
    if not lasts_s or len(at_s) < 3:
        return None
    gaps = np.diff(at_s)
    seconds = np.unique(at_s.astype(np.int64), return_counts=True)[1]
    pieces = np.histogram(at_s, _PIECES, (0.0, lasts_s))[0] * _PIECES / lasts_s
    return Rate(
        len(at_s) / lasts_s,
        tuple(pieces.tolist()),
        int(seconds.max()),
        float(gaps.std() / gaps.mean()),
        _dispersion(at_s, lasts_s),
    )


def _dispersion(at_s: NDArray[np.float64], lasts_s: float) -> float:
    length_s = 60.0 if lasts_s >= 600 else lasts_s / 10 if lasts_s < 10 else 1.0
    pieces = int(lasts_s // length_s)  # whole ones
    places, counts = np.unique((at_s // length_s).astype(np.int64), return_counts=True)
    counts = counts[places < pieces].astype(np.float64)
    mean = counts.sum() / pieces
    return float((np.square(counts).sum() / pieces - mean * mean) / mean) if mean else 0.0


def _reuse(requests: Sequence[Request], block_tokens: int) -> Reuse:
    curve = lru_curve(requests, block_tokens)
    distinct = len({block for one in requests for block in one.blocks})
    most = int(curve.needs_blocks[-1]) if len(curve.needs_blocks) else 0
    round_ones = [digit * 10**power for power in range(18) for digit in (1, 2, 5)]
    sizes = [*[size for size in round_ones if size < most][-_CACHES:], most] if most else []
    return Reuse(
        block_tokens,
        curve.share(),
        tuple((size, curve.share(size)) for size in sizes),
        distinct,
    )
