"""Serverless functions on warm slots: how many it takes, and how late a start is then (row S136).

Each start takes a warm slot for good, and another one is warm in its place some time later. So many
are being refilled on average as come in that time: Little's law. But they come at random: with no
more slots than that half of all starts would find none. The pool that keeps a promise for 99 of 100
starts is the count that the number in refill stays within so often, which is Poisson's.
"""

from dataclasses import dataclass

from ridgeline.physics.spares import poisson_quantile
from ridgeline.quantity import value_of
from ridgeline.serving.policy.scale import warm_pool
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.devices import Claim, Devices
from ridgeline.serving.simulate.outcome import percentile
from ridgeline.timeline import NS, Timeline

_ARRIVES, _REFILLED = 1, 0


@dataclass(frozen=True, slots=True)
class Pool:
    """Slots, and what came of them: the mean number in refill, and times (s) until a start."""

    slots: int
    in_refill: float
    late: float
    p99_start_s: float


def mean_slots(starts_per_s: float, refill_s: float) -> int:
    """By Little's law: as many as are in refill on average."""
    return warm_pool(starts_per_s, refill_s)


def slots_for(starts_per_s: float, refill_s: float, share: float) -> int:
    """So many that this share of the starts finds one at once, and one more for itself."""
    return int(value_of(poisson_quantile(starts_per_s * refill_s, share))) + 1


def served(
    slots: int, starts_per_s: float, refill_s: float, *, warm_s: float, starts: int = 40_000
) -> Pool:
    """So many starts at random; a warm one takes `warm_s`, and who finds none waits for one."""
    import numpy as np

    timeline, chances, pool = Timeline(), Chances(1), Devices(slots)
    waits_s: list[float] = []
    busy_ns = [0]

    def arrive(number: int) -> None:
        asked_ns = timeline.now_ns
        held: list[Claim] = []

        def take() -> None:
            waits_s.append((timeline.now_ns - asked_ns) / NS + warm_s)
            busy_ns[0] += round(refill_s * NS)
            timeline.at(timeline.now_ns + round(refill_s * NS), _REFILLED, refilled, held)

        held.append(pool.take(1, take))
        if number + 1 < starts:
            gap_s = chances.exponential("start", number) / starts_per_s
            timeline.at(asked_ns + round(gap_s * NS), _ARRIVES, arrive, number + 1)

    def refilled(held: list[Claim]) -> None:
        pool.give(held[0])

    timeline.at(0, _ARRIVES, arrive, 0)
    timeline.run()
    waits = np.array(waits_s)
    return Pool(
        slots,
        busy_ns[0] / timeline.now_ns,
        float((waits > warm_s + 1e-9).mean()),
        percentile(waits, 0.99),
    )
