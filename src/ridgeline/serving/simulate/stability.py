"""Whether a run was in balance, or its backlog grew for as long as requests came.

Near the limit of what a platform serves, a small error in its speed is a large one in every
latency, and a run's percentiles say more about its length than about the platform. So the number
of requests in flight is looked at over time: where it still goes up in the second half of the
arrivals, by more than it scatters, and first tokens come later and later too, the run is called
unstable, and its latencies are no answer. (In flight alone goes up in every run that begins empty.)

Source of the idea: Law, Simulation Modeling and Analysis, 5th ed. 2015, chapter 9 (a steady state
that does not exist).
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.outcome import Column
from ridgeline.timeline import NS

_PARTS = 40
_LEAST_REQUESTS = 90
#: How many standard errors the last quarter must be above the third one, and by what factor.
_SIGMAS = 3.0
_FACTOR = 1.1


@dataclass(frozen=True, slots=True)
class Balance:
    """Requests in flight, and the wait for a first token, in the third and the last quarter."""

    flying: tuple[float, float]
    wait_s: tuple[float, float]
    is_stable: bool


def balance(at_ns: Column, first_ns: Column, done_ns: Column) -> Balance:
    """Of requests that came at `at_ns` and had ended by `done_ns`; who got no token has -1."""
    if len(at_ns) < _LEAST_REQUESTS:
        return Balance((0.0, 0.0), (0.0, 0.0), True)
    edges = np.linspace(int(at_ns.min()), int(at_ns.max()), _PARTS + 1)
    came = np.searchsorted(np.sort(at_ns), edges, side="right")
    went = np.searchsorted(np.sort(done_ns), edges, side="right")
    flying = (came - went)[1:].astype(float)
    quarter = _PARTS // 4
    early, late = _Sample(flying[-2 * quarter : -quarter]), _Sample(flying[-quarter:])
    got = first_ns >= 0
    waited, part = (first_ns - at_ns)[got] / NS, np.searchsorted(edges, at_ns[got])
    in_last = part > _PARTS - quarter
    sooner = _Sample(waited[(part > _PARTS - 2 * quarter) & ~in_last])
    later = _Sample(waited[in_last])
    is_stable = not (late.is_above(early) and later.is_above(sooner))
    return Balance((early.mean, late.mean), (sooner.mean, later.mean), is_stable)


class _Sample:
    """The mean of some values, and how far it may be off."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.mean = float(values.mean()) if len(values) else 0.0
        self.variance = float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0

    def is_above(self, other: "_Sample") -> bool:
        """By more than chance, and by enough to matter."""
        spread = sqrt(self.variance + other.variance)
        return self.mean > other.mean + _SIGMAS * spread and self.mean > _FACTOR * other.mean
