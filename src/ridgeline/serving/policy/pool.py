"""The line for one model as pure code: the fair queue, admission, and what it measures itself.

`gateway.line` adds futures and a clock, the simulator adds virtual time. The rate is what a slot
serves, by whole requests, so that prompts and answers are in it as they come: tokens that were
served over the time in which the slot was held. Only those count that end while somebody queues:
then the pool gives all it can. A replica more or less changes the pool's rate at once.
"""

from ridgeline.serving.policy.admit import Admit, Bounds, Meter, PoolRates, Queue, Refuse, admit
from ridgeline.serving.policy.classes import CLASSES, NS, Classes
from ridgeline.serving.policy.fair import FairQueue, Nobody, Pick
from ridgeline.serving.policy.vtc import INPUT_WEIGHT, OUTPUT_WEIGHT, Entry


class Pool:
    """All requests for one model, waiting and running."""

    def __init__(self, classes: Classes = CLASSES, bounds: Bounds | None = None) -> None:
        self.queue = FairQueue(classes)
        self.bounds = bounds or Bounds()
        self._served = Meter()
        self._said = Meter()

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
        if not queue.queued and queue.slots + entry.slots <= capacity:
            queue.add(entry, now_ns)
            return _AT_ONCE
        verdict = self._verdict(entry, capacity, rates)
        if isinstance(verdict, Admit):
            queue.add(entry, now_ns)
        return verdict

    def pick(self, capacity: int, now_ns: int) -> Pick | Nobody:
        """Start the next one where there is one; called until it says nobody."""
        return self.queue.pick(capacity, now_ns)

    def leave(self, request_id: str) -> bool:
        """The client of a queued entry left; False where it does not queue."""
        return self.queue.leave(request_id)

    def expire(self, entry: Entry, capacity: int, rates: PoolRates | None = None) -> Refuse:
        """An entry has queued for all its patience: it leaves, and hears when to come again."""
        self.leave(entry.request_id)
        patience_s = self.queue.lane(entry).spec.patience_s
        reason = f"no slot came free for it in {patience_s:g} s"
        verdict = self._verdict(entry, capacity, rates)
        if isinstance(verdict, Refuse):
            return Refuse(verdict.retry_after_s, reason)
        # It would be let in at once and has waited in vain: the prediction was too low by as much.
        return Refuse(verdict.wait_s if verdict.wait_s is not None else patience_s, reason)

    def end(self, request_id: str, now_ns: int) -> bool:
        """A running entry ended; False where it does not run."""
        ended = self.queue.end(request_id)
        if ended is None:
            return False
        said, most = ended.output_tokens, ended.entry.output_tokens
        if said or not most:  # one without an answer has failed, and says nothing of either
            if most:
                self._said.saw(said, most)
            if self.queue.queued:
                tokens = INPUT_WEIGHT * ended.input_tokens + OUTPUT_WEIGHT * said
                self._served.saw(tokens, ended.slots * (now_ns - ended.began_ns) / NS)
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


_AT_ONCE = Admit(0.0, "starts at once")
