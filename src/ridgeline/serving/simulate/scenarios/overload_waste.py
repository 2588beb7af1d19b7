"""Little's law, and a burst that never drains because overload is expensive (ledger row S098).

So many requests a second that each stay so long are so many in flight, whatever their distribution.
Up to its slots an engine's step takes as long however many are in it; beyond them part of the work
is done twice (preempted sequences are computed again). A burst drains while what is left of the
capacity is more than what comes:

    drains  if and only if  capacity x (1 - waste) > load

At 90 % load that is a waste of less than 10 %; at 70 % the same burst drains with 12 %.
"""

from dataclasses import dataclass
from typing import Any

from ridgeline.physics.queues import requests_in_flight
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request


@dataclass(frozen=True, slots=True)
class Curve:
    """Step times: flat up to `slots` sequences, then as long as what is done, some of it twice."""

    slots: int
    step_s_: float
    waste: float

    def step_s(
        self,
        decode_tokens: Any = None,
        _cached_tokens: Any = None,
        prompt_tokens: Any = None,
        _attended_tokens: Any = None,
        /,
    ) -> float:
        """A prompt is one token here, and a sequence like the others."""
        sequences = (decode_tokens or 0) + (prompt_tokens or 0)
        if sequences <= self.slots:
            return self.step_s_
        return self.step_s_ * sequences / (self.slots * (1 - self.waste))


@dataclass(frozen=True, slots=True)
class Burst:
    """In flight before a burst, and a while after it."""

    before: int
    after: int

    @property
    def drains(self) -> bool:
        """Whether it is as before, within a tenth."""
        return self.after <= 1.1 * self.before


def in_flight(rate_per_s: float, residence_s: float) -> tuple[int, float]:
    """Requests at once in a run that has settled, and Little's."""
    tokens = 100
    engine = Engine(Machine(Plain(residence_s / tokens, 0.0, 1e12), 10**7), max_seqs=4096)
    count = round(rate_per_s * residence_s * 3)
    asks = [Request(n / rate_per_s, 1, tokens) for n in range(count)]
    model = Model("chat", engine, slots=10**6)
    outcome = simulate(Serving((model,)), OpenLoop(asks, "chat"))
    at_ns = round(residence_s * 2 * NS)
    asked, done = outcome.columns["at_ns"], outcome.columns["done_ns"]
    there = int(((asked <= at_ns) & (done > at_ns)).sum())
    return there, float(value_of(requests_in_flight(rate_per_s, residence_s)))


def burst(load: float, waste: float, *, slots: int = 100, extra: int = 30) -> Burst:
    """A tenth of the row's size: 100 slots, 20 s an answer, and a burst of 30 requests.

    Requests come evenly spaced at this share of what the slots serve, for forty answers' time.
    """
    tokens, answer_s = 100, 20.0
    curve = Curve(slots, answer_s / tokens, waste)
    engine = Engine(
        Machine(curve, 10**7), max_seqs=2048, max_batched_tokens=4096, prefix_caching=False
    )
    rate_per_s = load * slots / answer_s
    burst_s, until_s = 3 * answer_s, 40 * answer_s
    asks = [Request(n / rate_per_s, 1, tokens) for n in range(round(until_s * rate_per_s))]
    asks += [Request(burst_s, 1, tokens)] * extra
    asks.sort(key=lambda one: one.at_s)
    model = Model("chat", engine, slots=10**6)
    outcome = simulate(Serving((model,)), OpenLoop(asks, "chat"))
    asked, done = outcome.columns["at_ns"], outcome.columns["done_ns"]

    def there(at_s: float) -> int:
        at_ns = round(at_s * NS)
        return int(((asked < at_ns) & (done > at_ns)).sum())

    return Burst(there(burst_s), there(until_s - 1.0))
