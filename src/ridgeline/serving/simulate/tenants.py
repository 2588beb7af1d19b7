"""Tenants that share a replica, in virtual time: what one of them does to the others.

The platform is `world`'s: the gateway's limits and line, one replica. The same seed gives each
tenant the same requests whatever another one does and whoever limits it. A client that is refused
does not come again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np

from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.clients import OpenLoop, Several
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Gateway, Model, Serving
from ridgeline.serving.simulate.setup import Tenant as Named
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Arrivals, Request, Sizes, synthetic

POISSON = Arrivals("Poisson", 1.0)
_MODEL = "chat"


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant's traffic: requests, each `times` as large as its sizes say, and its limits."""

    name: str
    rate_per_s: float
    prompt: Sizes
    output: Sizes
    times: int = 1
    limits: Limits = field(default_factory=Limits)

    def requests(self, seed: int, lasts_s: float) -> Iterator[Request]:
        """All that it asks in that time."""
        drawn = synthetic(POISSON, self.prompt, self.output, rate_per_s=self.rate_per_s, seed=seed)
        for one in takewhile(lambda request: request.at_s < lasts_s, drawn):
            yield replace(
                one,
                prompt_tokens=one.prompt_tokens * self.times,
                output_tokens=one.output_tokens * self.times,
                tenant=self.name,
            )


@dataclass(frozen=True, slots=True)
class Setup:
    """The replica and the line before it. Without `fair`, all tenants queue as if they were one."""

    machine: Machine
    slots: int = 64
    max_batched_tokens: int = 2048
    fair: bool = True
    lasts_s: float = 180.0
    seed: int = 0

    def serving(self, tenants: Sequence[Tenant]) -> Serving:
        """The platform."""
        engine = Engine(self.machine, self.slots, self.max_batched_tokens)
        return Serving(
            (Model(_MODEL, engine, slots=self.slots),),
            tuple(Named(tenant.name, limits=tenant.limits) for tenant in tenants),
            Gateway(fair=self.fair),
            seed=self.seed,
        )


def shared(tenants: Sequence[Tenant], setup: Setup) -> Outcome:
    """All that the tenants ask in the time of the setup, served to its end."""
    crowds = [
        OpenLoop(tenant.requests(setup.seed * 1_000 + number, setup.lasts_s), _MODEL)
        for number, tenant in enumerate(tenants)
    ]
    return simulate(setup.serving(tenants), Several(crowds))


def of(outcome: Outcome, tenants: frozenset[str]) -> Outcome:
    """The same for the requests of these tenants."""
    numbers = [number for number, name in enumerate(outcome.names) if name in tenants]
    keep = np.isin(outcome.columns["tenant"], numbers)
    return replace(outcome, columns={name: one[keep] for name, one in outcome.columns.items()})


def tokens(outcome: Outcome) -> int:
    """What was served, input and output."""
    columns, answered = outcome.columns, outcome.answered
    return int((columns["prompt_tokens"] + columns["said_tokens"])[answered].sum())
