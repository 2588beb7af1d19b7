"""Little's law, and a burst that never drains because overload is expensive (ledger row S098).

So many requests a second that each stay so long are so many in flight, whatever their distribution.
Up to its slots an engine's step takes as long however many are in it; beyond them part of the work
is done twice (preempted sequences are computed again). A burst drains while what is left of the
capacity is more than what comes:

    drains  if and only if  capacity x (1 - waste) > load

At 90 % load that is a waste of less than 10 %; at 70 % the same burst drains with 12 %.

Clients waste as well: a share of them leaves whatever is slower than an answer takes at full slots,
and asks anew so many times. Each such request asks for an answer's work `retries` times more than
before, so the work that comes is load x (1 + share x retries), of which a part is done for nobody:

    waste = share x retries / (1 + share x retries)

so that load x (1 + share x retries) < capacity is the same law. Where it is broken the overload
does not grow for ever: the longer answers take the less of each is done before its client leaves,
so it stays where just the capacity is asked for. It does not end by itself either.
"""

from dataclasses import dataclass
from typing import Any

from ridgeline.physics.queues import requests_in_flight
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.clients import Manners, OpenLoop, Several
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request

#: An answer takes 20 s at full slots: 100 tokens of 0.2 s. The burst comes after three of them.
_TOKENS, _ANSWER_S, _BURST_S = 100, 20.0, 60.0
#: So long hasty clients wait for the whole of one, in times of an answer at full slots.
_PATIENCE = 1.1


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
    clients = OpenLoop(_asks(load, slots, extra, 40), "chat")
    return _burst(Curve(slots, _ANSWER_S / _TOKENS, waste), clients, 40)


def waste_of(share: float, retries: int) -> float:
    """Of the work that is done, what is done for clients who have left by its end."""
    return share * retries / (1 + share * retries)


def stays_at(load: float, share: float, retries: int, slots: int = 100) -> float:
    """In flight where the overload stays: of each hasty answer just so much is done by then."""
    done = (1 / load - 1 + share) / (share * (retries + 1))
    return _PATIENCE * slots / done


def left(
    load: float, share: float, retries: int = 1, *, slots: int = 100, extra: int = 60
) -> Burst:
    """The same slots without any waste of their own, and a share of clients who will not wait.

    They leave what takes a tenth longer than at full slots, and ask anew so many times. After a
    burst of 60 requests, eighty answers' time goes by.
    """
    patient: list[Request] = []
    hasty: list[Request] = []
    for number, ask in enumerate(_asks(load, slots, extra, 80)):
        is_hasty = int((number + 1) * share) > int(number * share)
        (hasty if is_hasty else patient).append(ask)
    manners = Manners(retries, whole_s=_PATIENCE * _ANSWER_S, again=retries > 0)
    crowds = OpenLoop(patient, "chat"), OpenLoop(hasty, "chat", manners=manners)
    return _burst(Curve(slots, _ANSWER_S / _TOKENS, 0.0), Several(crowds), 80)


def _asks(load: float, slots: int, extra: int, answers: int) -> list[Request]:
    rate_per_s = load * slots / _ANSWER_S
    count = round(answers * _ANSWER_S * rate_per_s)
    asks = [Request(n / rate_per_s, 1, _TOKENS) for n in range(count)]
    asks += [Request(_BURST_S, 1, _TOKENS)] * extra
    return sorted(asks, key=lambda one: one.at_s)


def _burst(curve: Curve, clients: OpenLoop | Several, answers: int) -> Burst:
    engine = Engine(
        Machine(curve, 10**7), max_seqs=2048, max_batched_tokens=4096, prefix_caching=False
    )
    outcome = simulate(Serving((Model("chat", engine, slots=10**6),)), clients)
    asked, done = outcome.columns["at_ns"], outcome.columns["done_ns"]

    def there(at_s: float) -> int:
        at_ns = round(at_s * NS)
        return int(((asked < at_ns) & (done > at_ns)).sum())

    return Burst(there(_BURST_S), there(answers * _ANSWER_S - 1.0))
