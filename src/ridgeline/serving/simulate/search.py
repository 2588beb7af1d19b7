"""The limit of a platform by bisection: the highest rate, or the fewest replicas, that keep an SLO.

Every trial has the same requests under the same seeds, so that what differs is what is sought.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean

from ridgeline.serving.simulate.log import Tick
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.report import Slo
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.stability import balance_of
from ridgeline.serving.simulate.study import runs
from ridgeline.serving.simulate.traffic import Traffic

MOST_REPLICAS = 256


@dataclass(frozen=True, slots=True)
class FoundRate:
    """The highest rate at which an SLO is kept, and the lowest at which it was not."""

    kept_per_s: float
    missed_per_s: float
    attainment: float
    runs: int


@dataclass(frozen=True, slots=True)
class FoundReplicas:
    """The fewest that keep an SLO, and what one less gave (None of none).

    Where one more than `replicas` misses it again (`is_monotone` is False) there is no one limit.
    """

    replicas: int
    attainment: float
    one_less: float | None
    is_monotone: bool
    runs: int


def keeps(outcomes: Sequence[Outcome], slo: Slo, *, is_loop: bool = False) -> tuple[bool, float]:
    """Whether all seeds together got what was promised, in balance; and the share that did."""
    shares = [float(one.met(slo.ttft_s, slo.tpot_s).mean()) for one in outcomes]
    steady = all(balance_of(one, is_loop=is_loop).is_stable for one in outcomes)
    return fmean(shares) >= slo.attainment and steady, fmean(shares)


def find_rate(
    serving: Serving,
    traffic: Traffic,
    slo: Slo,
    seeds: Sequence[int],
    *,
    within: float = 0.02,
    tick: Tick | None = None,
) -> FoundRate:
    """Bisection over the rate, to a share of it; the same chances at every rate.

    Raises ValueError where the traffic has no times, or where even a thousandth of it misses.
    """
    own = traffic.rate_per_s
    if not own or traffic.loop is not None:
        raise ValueError("only requests with times have a rate")
    tried = 0

    def kept_at(faster: float) -> tuple[bool, float]:
        nonlocal tried
        tried += len(seeds)
        return keeps(runs(serving, traffic, seeds, faster, tick=tick), slo)

    low, high, share = 0.0, 1.0, 0.0
    kept, found = kept_at(high)
    while kept and high < 1024:
        low, share, high = high, found, high * 2
        kept, found = kept_at(high)
    if not low:
        low = high
        while not kept and low > 1 / 1024:
            high, low = low, low / 2
            kept, share = kept_at(low)
        if not kept:
            raise ValueError("not even a thousandth of this rate keeps the SLO")
    while high / low > 1 + within:
        middle = sqrt(low * high)
        kept, found = kept_at(middle)
        if kept:
            low, share = middle, found
        else:
            high = middle
    return FoundRate(low * own, high * own, share, tried)


def find_replicas(
    serving: Serving,
    traffic: Traffic,
    slo: Slo,
    seeds: Sequence[int],
    *,
    most: int = MOST_REPLICAS,
    tick: Tick | None = None,
) -> FoundReplicas:
    """Bisection over how many replicas of the asked model there always are, without a scaler.

    Raises ValueError where not even `most` keep the SLO.
    """
    tried = 0
    shares: dict[int, float] = {0: 0.0}

    def kept_with(count: int) -> bool:
        nonlocal tried
        tried += len(seeds)
        fixed = with_replicas(serving, traffic.model, count)
        outcomes = runs(fixed, traffic, seeds, tick=tick)
        kept, shares[count] = keeps(outcomes, slo, is_loop=traffic.loop is not None)
        return kept

    low, high = _bracket(kept_with, most, shares)
    while high - low > 1:
        middle = (low + high) // 2
        if kept_with(middle):
            high = middle
        else:
            low = middle
    monotone = high == most or kept_with(high + 1)
    return FoundReplicas(high, shares[high], shares[low] if low else None, monotone, tried)


def _bracket(
    kept_with: Callable[[int], bool], most: int, shares: dict[int, float]
) -> tuple[int, int]:
    """A count that misses and one that keeps."""
    low, high = 0, 1
    while not kept_with(high):
        if high == most:
            raise ValueError(
                f"not even {most} replicas keep the SLO: {shares[most]:.1%} of requests do"
            )
        low, high = high, min(high * 2, most)
    return low, high


def with_replicas(serving: Serving, served: str, count: int) -> Serving:
    """The same with so many replicas, always, of the first kind that serves a name."""
    first = next(one for one in serving.models if one.served == served)
    fixed = replace(first, replicas=count, scaling=None)
    return replace(serving, models=tuple(fixed if one is first else one for one in serving.models))
