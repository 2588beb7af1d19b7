"""Whether a request that cannot start at once may queue, by how long it would wait. Pure.

    wait = tokens that are served before it starts / the rate at which the pool serves them

The wait is compared with the patience of its class: who would give up anyway is told at once, and
when to come again. Where nothing is known of the rate, it queues. A queue is bounded besides, in
entries and bytes; a tenant may queue as much as is still free, so that one flood never fills it
(dynamic thresholds: Choudhury and Hahne, 1998).
"""

from dataclasses import dataclass

from ridgeline.serving.policy.fair import Ahead


@dataclass(frozen=True, slots=True)
class PoolRates:
    """Tokens that the whole pool serves in a second, were it only input, or only output.

    From the step-time model, or `measured` by a `Meter`. `source` says which.
    """

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    source: str

    def seconds(self, input_tokens: float, output_tokens: float) -> float:
        """How long the pool works on so many tokens."""
        return input_tokens / self.prefill_tokens_per_s + output_tokens / self.decode_tokens_per_s


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that may queue for one model."""

    entries: int = 10_000
    bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Queue:
    """What queues now: all, and of the tenant that asks."""

    entries: int = 0
    bytes: int = 0
    tenant_entries: int = 0
    tenant_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Admit:
    """It may queue; `wait_s` is None where nothing is known."""

    wait_s: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """It may not; after `retry_after_s` it might."""

    retry_after_s: float
    reason: str


def predicted_wait_s(ahead: Ahead, rates: PoolRates) -> float:
    """How long a new entry would queue.

    A class goes behind those above it or lives on its floor, whichever is faster. What it asks for
    itself counts as ahead of it: one about as large has to end before it can start.
    """
    own_s = rates.seconds(ahead.input_tokens, ahead.output_tokens)
    behind_s = own_s + rates.seconds(ahead.higher_input_tokens, ahead.higher_output_tokens)
    return min(behind_s, own_s / ahead.floor) if ahead.floor > 0 else behind_s


def admit(
    ahead: Ahead,
    queue: Queue,
    rates: PoolRates | None,
    *,
    body_bytes: int,
    patience_s: float,
    bounds: Bounds,
) -> Admit | Refuse:
    """May a new entry queue? Asked only where it cannot start at once."""
    wait_s = predicted_wait_s(ahead, rates) if rates else None
    full = _full(queue, body_bytes, bounds)
    if full:
        # One place is free after its share of the wait; where that is unknown, soon.
        return Refuse((wait_s or 0.0) / max(queue.entries, 1), full)
    if wait_s is None or rates is None:
        return Admit(None, "queues: how fast the pool is, is not known yet")
    said = f"{wait_s:.1f} s of work ({rates.source}) go before it"
    if wait_s > patience_s:
        return Refuse(wait_s - patience_s, f"{said}, its class waits {patience_s:g} s at most")
    return Admit(wait_s, f"queues: {said}")


def _full(queue: Queue, body_bytes: int, bounds: Bounds) -> str:
    if queue.tenant_entries >= bounds.entries - queue.entries:
        return f"{queue.entries} requests queue, {queue.tenant_entries} of this tenant"
    if queue.tenant_bytes + body_bytes > bounds.bytes - queue.bytes:
        return f"{queue.bytes} bytes of requests queue, {queue.tenant_bytes} of this tenant"
    return ""


class Meter:
    """A ratio of sums that fades: what was seen `half` observations ago counts half.

    It says nothing before it has seen `least` observations.
    """

    def __init__(self, half: int = 100, least: int = 8) -> None:
        self._kept = 0.5 ** (1 / half)
        self._left = least
        self._amount = 0.0
        self._over = 0.0

    def saw(self, amount: float, over: float) -> None:
        """So much `amount` in so much time, or over so much of something else."""
        self._left -= 1
        self._amount = self._amount * self._kept + amount
        self._over = self._over * self._kept + over

    @property
    def ratio(self) -> float | None:
        """None where too little was seen, or nothing."""
        if self._left > 0 or self._amount <= 0 or self._over <= 0:
            return None
        return self._amount / self._over
