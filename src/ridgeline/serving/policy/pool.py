"""The line for one model as pure code: the fair queue, admission, and what it measures itself.

`gateway.line` adds futures and a clock, the simulator adds virtual time. The rate is measured only
while somebody queues: then the pool gives all it can. It is measured for one slot, so a replica
more or less changes it at once.
"""

from ridgeline.serving.policy.admit import Admit, Bounds, Meter, PoolRates, Queue, Refuse, admit
from ridgeline.serving.policy.classes import CLASSES, NS, Classes
from ridgeline.serving.policy.fair import FairQueue, Nobody, Pick
from ridgeline.serving.policy.vtc import INPUT_WEIGHT, OUTPUT_WEIGHT, Entry

_HALF_S, _LEAST_S = 30.0, 1.0  # of time in which somebody queued
_HALF_TOKENS, _LEAST_TOKENS = 1_000_000.0, 1.0  # of output that was allowed


class Pool:
    """All requests for one model, waiting and running."""

    def __init__(self, classes: Classes = CLASSES, bounds: Bounds | None = None) -> None:
        self.queue = FairQueue(classes)
        self.bounds = bounds or Bounds()
        self._served = Meter(_HALF_S, _LEAST_S)
        self._said = Meter(_HALF_TOKENS, _LEAST_TOKENS)
        self._seen_ns = 0
        self._seen = 0.0

    @property
    def output_share(self) -> float:
        """The part of the most output that requests really generate; all until known."""
        return min(1.0, self._said.ratio or 1.0)

    def rates(self, capacity: int) -> PoolRates | None:
        """What was measured, for so many slots."""
        per_slot = self._served.ratio
        if per_slot is None or capacity <= 0:
            return None
        served = per_slot * capacity
        return PoolRates(served / INPUT_WEIGHT, served / OUTPUT_WEIGHT, "as measured")

    def enter(
        self, entry: Entry, capacity: int, now_ns: int, rates: PoolRates | None = None
    ) -> Admit | Refuse:
        """Queue an entry, or refuse it. `rates` go before those measured here."""
        queue = self.queue
        self._measure(now_ns)
        if not queue.queued and queue.slots + entry.slots <= capacity:
            queue.add(entry, now_ns)
            return _AT_ONCE
        verdict = self._verdict(entry, capacity, rates)
        if isinstance(verdict, Admit):
            queue.add(entry, now_ns)
        return verdict

    def pick(self, capacity: int, now_ns: int) -> Pick | Nobody:
        """Start the next one where there is one; called until it says nobody."""
        self._measure(now_ns)
        return self.queue.pick(capacity, now_ns)

    def leave(self, request_id: str, now_ns: int) -> bool:
        """The client of a queued entry left; False where it does not queue."""
        self._measure(now_ns)
        return self.queue.leave(request_id)

    def expire(
        self, entry: Entry, capacity: int, now_ns: int, rates: PoolRates | None = None
    ) -> Refuse:
        """An entry has queued for all its patience: it leaves, and hears when to come again."""
        self.leave(entry.request_id, now_ns)
        patience_s = self.queue.lane(entry).spec.patience_s
        reason = f"no slot came free for it in {patience_s:g} s"
        verdict = self._verdict(entry, capacity, rates)
        if isinstance(verdict, Refuse):
            return Refuse(verdict.retry_after_s, reason)
        # It would be let in at once and has waited in vain: the prediction was too low by as much.
        return Refuse(verdict.wait_s if verdict.wait_s is not None else patience_s, reason)

    def end(self, request_id: str, now_ns: int) -> bool:
        """A running entry ended; False where it does not run."""
        self._measure(now_ns)
        ended = self.queue.end(request_id)
        if ended is None:
            return False
        entry, output_tokens = ended
        if entry.output_tokens and output_tokens:
            self._said.saw(output_tokens, entry.output_tokens)
        return True

    def _verdict(self, entry: Entry, capacity: int, rates: PoolRates | None) -> Admit | Refuse:
        queue, lane = self.queue, self.queue.lane(entry)
        flow = lane.counters.flows.get(entry.tenant)
        return admit(
            queue.ahead(entry, capacity, self.output_share),
            Queue(
                queue.queued,
                queue.queued_bytes,
                len(flow.queue) if flow else 0,
                flow.queued_bytes if flow else 0,
            ),
            rates or self.rates(capacity),
            body_bytes=entry.body_bytes,
            patience_s=lane.spec.patience_s,
            bounds=self.bounds,
        )

    def _measure(self, now_ns: int) -> None:
        """What was served since the last look, where somebody queued all the while."""
        queue = self.queue
        if now_ns <= self._seen_ns:
            return  # what starts at one instant is served after it
        if queue.queued and queue.slots:
            by_slot = (queue.served - self._seen) / queue.slots
            self._served.saw(by_slot, (now_ns - self._seen_ns) / NS)
        self._seen_ns = now_ns
        self._seen = queue.served


_AT_ONCE = Admit(0.0, "starts at once")
