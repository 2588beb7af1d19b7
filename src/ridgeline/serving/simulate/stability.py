"""Whether a run was in balance, or its backlog grew for as long as requests came.

Near the limit of what a platform serves, a small error in its speed is a large one in every
latency, and a run's percentiles say more about its length than about the platform. So the number
of requests in flight is looked at over time. Where it still goes up in the second half of the
arrivals and first tokens come later and later too, by more than they scatter, the run is UNSTABLE:
its growth is told, with an interval by batch means. (In flight alone goes up in every run that
begins empty.) Where a queue stood nearly all the time the run is AT ITS LIMIT: whether it would
have emptied again is luck; and where requests were turned away from it, it is OVERLOADED: their
patience sets the times. The latencies of none of them are an answer.

Source of the idea: Law, Simulation Modeling and Analysis, 5th ed. 2015, chapter 9 (a steady state
that does not exist; batch means).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.intervals import Interval, interval
from ridgeline.serving.simulate.outcome import Column, Outcome
from ridgeline.timeline import NS

_PARTS = 40
_LEAST_REQUESTS = 90
#: How many standard errors the last quarter must be above the third one, and by what factor.
_SIGMAS = 3.0
_FACTOR = 1.1
#: Of the second half of the arrivals: batches for the interval, and instants to look for a queue.
_BATCHES = 10
_INSTANTS = 200
#: From this share of the instants on a queue counts as one that never emptied. Up to 0.9 of the
#: limit one stands for half the time at most, at the limit for 0.9 of it and more (test_stability).
_NEARLY_ALWAYS = 0.8
#: Where more and more come, less than this share is no sign that they are too many.
_SOMETIMES = 0.25
#: In an engine a queue is more than so many, and more than so many times those who would be at
#: their prompts were each alone there; the least of a size, of so many sizes, is who was alone.
_FEW = 3
_CROWDED = 10
_SIZES = 20
#: Where a queue stands and more than this share was turned away, patience sets the times.
_TURNED_AWAY = 0.01


class Verdict(StrEnum):
    """What a run's latencies are worth."""

    STABLE = "stable"
    AT_LIMIT = "at its limit"
    OVERLOADED = "overloaded"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Balance:
    """Requests in flight, and the wait for a first token, in the third and the last quarter.

    `growth_per_s` is of those in flight over the second half of the arrivals; `queued` the share
    of it in which requests stood in line at the gateway, or more before engines than work explains.
    """

    flying: tuple[float, float]
    wait_s: tuple[float, float]
    growth_per_s: Interval
    queued: float
    verdict: Verdict

    @property
    def is_stable(self) -> bool:
        """Whether its percentiles say something of the platform."""
        return self.verdict is Verdict.STABLE


_CALM = Balance((0.0, 0.0), (0.0, 0.0), Interval(0.0, None), 0.0, Verdict.STABLE)


def balance_of(outcome: Outcome, *, is_loop: bool = False) -> Balance:
    """Of a run. In a closed loop a queue that stays is no sign: its end is all clients."""
    columns = outcome.columns
    if outcome.requests < _LEAST_REQUESTS or columns["at_ns"].min() == columns["at_ns"].max():
        return _CALM
    queued = _queued(columns, len(outcome.replicas))
    found = _growing(columns["at_ns"], columns["first_ns"], columns["done_ns"], queued)
    if queued < _NEARLY_ALWAYS or is_loop:
        return found
    verdict = Verdict.UNSTABLE if found.verdict is Verdict.UNSTABLE else Verdict.AT_LIMIT
    away = outcome.count(End.REFUSED) + outcome.count(End.UNREADY)
    if away > _TURNED_AWAY * outcome.requests:
        return replace(found, verdict=Verdict.OVERLOADED)
    return replace(found, verdict=verdict)


def _growing(at_ns: Column, first_ns: Column, done_ns: Column, queued: float) -> Balance:
    """Whether the backlog grew, of requests that came at `at_ns` and had ended by `done_ns`.

    Where more come there are more in flight: that alone is no backlog.
    """
    begin, end = int(at_ns.min()), int(at_ns.max())
    edges = np.linspace(begin, end, _PARTS + 1)
    flying = _between(at_ns, done_ns, edges)[1:].astype(float)
    quarter = _PARTS // 4
    early, late = _Sample(flying[-2 * quarter : -quarter]), _Sample(flying[-quarter:])
    got = first_ns >= 0
    waited, part = (first_ns - at_ns)[got] / NS, np.searchsorted(edges, at_ns[got])
    in_last = part > _PARTS - quarter
    sooner = _Sample(waited[(part > _PARTS - 2 * quarter) & ~in_last])
    later = _Sample(waited[in_last])
    growth = _growth(at_ns, done_ns, np.linspace((begin + end) / 2, end, _BATCHES + 1))
    came, _ = np.histogram(at_ns, edges)
    more_come = _Sample(came[-quarter:]).is_above(_Sample(came[-2 * quarter : -quarter]))
    grew = later.is_above(sooner) and (late.is_above(early) or growth.low > 0)
    verdict = Verdict.STABLE
    if grew and not (more_come and queued < _SOMETIMES):
        verdict = Verdict.UNSTABLE if growth.low > 0 else Verdict.AT_LIMIT
    return Balance((early.mean, late.mean), (sooner.mean, later.mean), growth, queued, verdict)


def _between(begins: Column, ends: Column, at: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many have begun and not ended, at each of these instants."""
    begun = np.searchsorted(np.sort(begins), at, side="right")
    return np.asarray(begun - np.searchsorted(np.sort(ends), at, side="right"))


def _growth(at_ns: Column, done_ns: Column, edges: NDArray[np.float64]) -> Interval:
    gained = np.diff(_between(at_ns, done_ns, edges)) / ((edges[1] - edges[0]) / NS)
    return interval([float(one) for one in gained])


def _queued(columns: Mapping[str, Column], engines: int) -> float:
    """The share of instants of the second half of the arrivals at which a queue stood.

    In the gateway's line, where all slots are taken, or before the engines.
    """
    begin, end = int(columns["at_ns"].min()), int(columns["at_ns"].max())
    instants = np.linspace((begin + end) / 2, end, _INSTANTS)
    entered, sent, done = (columns[name] for name in ("entered_ns", "sent_ns", "done_ns"))
    once = (entered >= 0) & (columns["tries"] <= 1)
    line = _between(entered[once], np.where(sent >= 0, sent, done)[once], instants)
    there = (sent >= 0) & (columns["tries"] <= 1)
    first = np.where(columns["first_ns"] >= 0, columns["first_ns"], done)[there]
    inside = _between(sent[there], first, instants)
    alone = _alone_ns(
        (columns["prompt_tokens"] - columns["cached_tokens"])[there], first - sent[there]
    )
    working = _between(sent[there], sent[there] + alone, instants)
    crowded = inside > _FEW * max(engines, 1) + _CROWDED * working
    return float(((line > 0) | crowded).mean())


def _alone_ns(tokens: Column, took_ns: Column) -> Column:
    """What a prompt of as many tokens took whom nobody was in the way of."""
    if not len(tokens):
        return took_ns
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, _SIZES + 1)[1:-1]))
    size = np.searchsorted(edges, tokens, side="left")  # those of one length are of one size
    least = np.full(len(edges) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, size, took_ns)
    return np.asarray(least[size])


class _Sample:
    """The mean of some values, and how far it may be off."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.mean = float(values.mean()) if len(values) else 0.0
        self.variance = float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0

    def is_above(self, other: "_Sample") -> bool:
        """By more than chance, and by enough to matter."""
        spread = sqrt(self.variance + other.variance)
        return self.mean > other.mean + _SIGMAS * spread and self.mean > _FACTOR * other.mean
