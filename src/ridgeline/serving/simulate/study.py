"""Several runs: over seeds with intervals, of two platforms side by side, and to find a limit.

Platforms are compared with common random numbers: under each seed both get the same requests, so
that the interval of their difference is narrower than that of either (Law, Simulation Modeling and
Analysis, 5th ed. 2015, chapter 11). Intervals are Student's, 95 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev

from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.report import SHARES, Slo
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.stability import balance
from ridgeline.serving.simulate.traffic import Traffic
from ridgeline.serving.simulate.world import simulate

#: Student's t, 97.5 %, for 1, 2, ... degrees of freedom; from 30 on it is about the normal's.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
)  # fmt: skip
_T_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds, and how far the true one may be on either side; None of one seed."""

    mean: float
    half: float | None

    def is_apart(self) -> bool:
        """Whether it does not hold 0."""
        return self.half is not None and abs(self.mean) > self.half


def interval(values: Sequence[float]) -> Interval:
    """Of values of independent runs."""
    if len(values) < 2:
        return Interval(values[0], None)
    freedom = len(values) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else _T_NORMAL
    return Interval(fmean(values), t * stdev(values) / sqrt(len(values)))


def runs(
    serving: Serving, traffic: Traffic, seeds: Sequence[int], faster: float = 1.0
) -> list[Outcome]:
    """One run for each seed."""
    return [
        simulate(replace(serving, seed=seed), traffic.clients(seed, faster), Log())
        for seed in seeds
    ]


def figures(outcome: Outcome, slo: Slo | None) -> dict[str, float]:
    """The numbers that runs are compared by; seconds, shares, dollars."""
    found: dict[str, float] = {}
    for name, values in (
        ("TTFT", outcome.ttft_s()), ("TPOT", outcome.tpot_s()), ("whole", outcome.e2e_s()),
    ):  # fmt: skip
        if len(values):
            found |= {f"{name} p{share * 100:g} (s)": percentile(values, share) for share in SHARES}
    found["answered (share)"] = float(outcome.answered.mean()) if outcome.requests else 0.0
    if slo is not None and outcome.requests:
        met = outcome.met(slo.ttft_s, slo.tpot_s)
        found["within the SLO (share)"] = float(met.mean())
    found["prefix hits (share)"] = outcome.hit_rate
    found["replica-hours"] = outcome.replica_hours
    found["cost ($)"] = float(outcome.usd)
    return found


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of two platforms, and of their difference (second less first)."""

    name: str
    first: Interval
    second: Interval
    difference: Interval


def compare(first: Sequence[Outcome], second: Sequence[Outcome], slo: Slo | None) -> list[Compared]:
    """Runs of the same seeds in the same order; figures that only one has are left out."""
    told = [[figures(one, slo) for one in some] for some in (first, second)]
    names = [name for name in told[0][0] if all(name in one for some in told for one in some)]
    rows = []
    for name in names:
        ones, others = ([one[name] for one in some] for some in told)
        gaps = [other - one for one, other in zip(ones, others, strict=True)]
        rows.append(Compared(name, interval(ones), interval(others), interval(gaps)))
    return rows


@dataclass(frozen=True, slots=True)
class Found:
    """The highest rate at which an SLO is kept, and the lowest at which it was not."""

    kept_per_s: float
    missed_per_s: float
    attainment: float
    runs: int


def keeps(outcomes: Sequence[Outcome], slo: Slo) -> tuple[bool, float]:
    """Whether all seeds together got what was promised, in balance; and the share that did."""
    shares = [float(one.met(slo.ttft_s, slo.tpot_s).mean()) for one in outcomes]
    return fmean(shares) >= slo.attainment and all(map(is_steady, outcomes)), fmean(shares)


def is_steady(outcome: Outcome) -> bool:
    """Whether its backlog did not grow for as long as requests came."""
    columns = outcome.columns
    return balance(columns["at_ns"], columns["first_ns"], columns["done_ns"]).is_stable


def find_rate(
    serving: Serving, traffic: Traffic, slo: Slo, seeds: Sequence[int], *, within: float = 0.02
) -> Found:
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
        return keeps(runs(serving, traffic, seeds, faster), slo)

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
    return Found(low * own, high * own, share, tried)
