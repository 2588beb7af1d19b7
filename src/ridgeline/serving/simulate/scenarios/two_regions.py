"""Regions that stand in for each other: how full each may be, and what a loss does (S139).

All regions are as large and as loaded. Then one is lost, and its clients go to the others. What
those cannot serve queues: the backlog after a while is simulated, beside the law of flow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline.physics.queues import backlog_requests
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import (
    Engine,
    Fault,
    Gateway,
    Model,
    Place,
    Region,
    Serving,
    Tenant,
    Trouble,
)
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request

#: When a region is lost: all are in their stride by then.
LOST_AT_S = 10.0
_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class Regions:
    """So many regions, each of which serves so many requests a second; an answer takes a while."""

    count: int = 2
    capacity_per_s: int = 50
    answer_s: float = 2.0

    @property
    def slots(self) -> int:
        """Requests at once in one: Little's law."""
        return round(self.capacity_per_s * self.answer_s)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a loss did at a utilisation: requests that wait, simulated and by the law of flow."""

    utilisation: float
    after_s: float
    waiting: int
    expected: float


def safe_utilisation(regions: int) -> float:
    """The most that each may carry so that the others can carry all without one: (N - 1)/N."""
    return (regions - 1) / regions


def losses(utilisations: Sequence[float], regions: Regions, after_s: float) -> list[Loss]:
    """A loss at each of these utilisations, looked at so long after it."""
    return [_loss(one, regions, after_s) for one in utilisations]


def _loss(utilisation: float, regions: Regions, after_s: float) -> Loss:
    rest = regions.count - 1
    overload = max(0.0, regions.count * utilisation / rest - 1)
    expected = backlog_requests(rest * regions.capacity_per_s, overload, after_s)
    outcome = simulate(_serving(regions), _clients(utilisation, regions, LOST_AT_S + after_s))
    return Loss(utilisation, after_s, _waiting(outcome, LOST_AT_S + after_s), value_of(expected))


def _serving(regions: Regions) -> Serving:
    """Every step takes as long however much is in it, so a region's capacity is known."""
    engine = Engine(Machine(Plain(_STEP_S, 0.0, 1e9), 10_000_000), max_seqs=regions.slots)
    names = [f"region-{number}" for number in range(regions.count)]
    return Serving(
        tuple(
            Model(f"chat-{name}", engine, slots=regions.slots, serves="chat", place=Place(name))
            for name in names
        ),
        tuple(Tenant(name, home=name) for name in names),
        Gateway(hold_s=0.0),
        (Fault(LOST_AT_S, Trouble.LOST, region=names[-1]),),
        regions=tuple(map(Region, names)),
    )


def _clients(utilisation: float, regions: Regions, until_s: float) -> OpenLoop:
    """Evenly spaced requests, in turn from every region's clients."""
    rate_per_s = utilisation * regions.capacity_per_s * regions.count
    tokens = round(regions.answer_s / _STEP_S)
    return OpenLoop(
        [
            Request(n / rate_per_s, 1, tokens, tenant=f"region-{n % regions.count}")
            for n in range(round(until_s * rate_per_s))
        ],
        "chat",
    )


def _waiting(outcome: Outcome, at_s: float) -> int:
    """Who had asked by then and had no replica; those that were cut do not count."""
    asked, sent = (outcome.columns[name] for name in ("at_ns", "sent_ns"))
    at_ns = round(at_s * NS)
    return int(np.count_nonzero((asked <= at_ns) & ((sent < 0) | (sent > at_ns))))
