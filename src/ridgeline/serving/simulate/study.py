"""Several runs: over seeds with intervals, and of platforms side by side.

Platforms are compared with common random numbers: under each seed all get the same requests, so
that the interval of their difference is narrower than that of either (Law, Simulation Modeling and
Analysis, 5th ed. 2015, chapter 11). Where seeds change nothing, as of a trace under rules that draw
nothing, the parts of the run stand in for runs (batch means). Intervals are Student's, 95 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.intervals import Interval, interval
from ridgeline.serving.simulate.log import Log, Tick
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.report import SHARES, Slo
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.traffic import Traffic
from ridgeline.serving.simulate.world import simulate

_PARTS = 10
_LEAST_REQUESTS = 20  # of a part, for a percentile of its own

#: Figures of a whole run, which its parts do not have.
WHOLE = ("replica-hours", "cost ($)")


def runs(
    serving: Serving,
    traffic: Traffic,
    seeds: Sequence[int],
    faster: float = 1.0,
    *,
    looked_at: bool = False,
    tick: Tick | None = None,
) -> list[Outcome]:
    """One run for each seed; the first one is `looked_at` over time."""
    return [
        simulate(
            replace(serving, seed=seed),
            traffic.clients(seed, faster),
            Log(tick=tick),
            Series() if looked_at and place == 0 else None,
        )
        for place, seed in enumerate(seeds)
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
    """One figure of several platforms, and of each one's difference from the first."""

    name: str
    values: tuple[Interval, ...]
    differences: tuple[Interval, ...]


def compare(some: Sequence[Sequence[Outcome]], slo: Slo | None) -> list[Compared]:
    """Runs of the same seeds in the same order; figures that not all have are left out."""
    means = [[figures(one, slo) for one in outcomes] for outcomes in some]
    split = _parts(some)
    parts = means if split is None else [[figures(one, slo) for one in ones] for ones in split]
    every = [told for one in (*means, *parts) for told in one]
    rows = []
    for name in means[0][0]:
        if not all(name in told for told in every):
            continue
        spread = means if split is None or name in WHOLE else parts
        rows.append(_compared(name, means, spread))
    return rows


def _compared(
    name: str, means: list[list[dict[str, float]]], spread: list[list[dict[str, float]]]
) -> Compared:
    def of(ones: list[float], samples: list[float]) -> Interval:
        return Interval(interval(ones).mean, interval(samples).half)

    whole = [[told[name] for told in one] for one in means]
    samples = [[told[name] for told in one] for one in spread]
    return Compared(
        name,
        tuple(of(one, sample) for one, sample in zip(whole, samples, strict=True)),
        tuple(
            of(_gaps(whole[0], one), _gaps(samples[0], sample))
            for one, sample in zip(whole[1:], samples[1:], strict=True)
        ),
    )


def _gaps(first: list[float], other: list[float]) -> list[float]:
    return [one - before for before, one in zip(first, other, strict=True)]


def _parts(some: Sequence[Sequence[Outcome]]) -> list[list[Outcome]] | None:
    """The parts of one run each, by its requests' numbers; None where seeds make a difference.

    They do where some platform's runs differ. Of few requests there are no parts either.
    """
    if any(len({one.digest for one in outcomes}) > 1 for outcomes in some):
        return None
    least = min(outcomes[0].requests for outcomes in some)
    if least < _PARTS * _LEAST_REQUESTS:
        return None
    cuts = np.linspace(0, int(some[0][0].columns["number"].max()) + 1, _PARTS + 1)
    return [_cut(outcomes[0], cuts) for outcomes in some]


def _cut(outcome: Outcome, cuts: NDArray[np.float64]) -> list[Outcome]:
    number = outcome.columns["number"]
    return [outcome.where((number >= low) & (number < high)) for low, high in pairwise(cuts)]
