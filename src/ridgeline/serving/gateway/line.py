"""Requests that wait for a slot: the live shell around `policy.pool`.

It keeps a future for each that waits, and asks the policy anew whenever something has changed: one
entered, ended, left, or the slots changed. A slot is held from the moment in which an entry is
picked until its ticket is closed, so the line alone knows what is free and never gives one twice.
Where a slot is free, `enter` makes no future and no task.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.admit import Bounds, PoolRates, Refuse
from ridgeline.serving.policy.classes import CLASSES, NS, Classes
from ridgeline.serving.policy.fair import Lane, Nobody, Pick
from ridgeline.serving.policy.pool import Pool
from ridgeline.serving.policy.vtc import Entry


@dataclass(frozen=True, slots=True)
class FlowView:
    """One tenant of a class, for the console and metrics."""

    tenant: str
    queued: int
    running: int
    counter_tokens: float
    oldest_wait_s: float


@dataclass(frozen=True, slots=True)
class ClassView:
    """One class of a model's line. `gap_tokens` of two that queue never passes the bound."""

    name: str
    queued: int
    running: int
    slots: int
    oldest_wait_s: float
    gap_tokens: float
    gap_bound_tokens: float
    tenants: tuple[FlowView, ...]


@dataclass(frozen=True, slots=True)
class PoolView:
    """One model's line."""

    model: str
    capacity: int
    held: int
    queued_bytes: int
    output_share: float
    rates: PoolRates | None
    classes: tuple[ClassView, ...]


class Ticket:
    """A slot, from the moment in which it is given until `close`."""

    __slots__ = ("_line", "_live", "entry", "reason", "slots", "waited_s")

    def __init__(self, line: "Line", live: "_Live", pick: Pick) -> None:
        self._line = line
        self._live = live
        self.entry = pick.entry
        self.slots = pick.slots
        self.waited_s = pick.waited_ns / NS
        self.reason = pick.reason

    def said(self, output_tokens: int) -> None:
        """So many tokens were generated up to now; charged at once."""
        self._live.pool.queue.said(self.entry.request_id, output_tokens)

    def corrected(self, input_tokens: int) -> None:
        """So many tokens of the input were really computed, i.e. not cached."""
        self._live.pool.queue.corrected(self.entry.request_id, input_tokens)

    def close(self) -> None:
        """Give the slot back, however it ended; a second time does nothing."""
        if self._live.pool.end(self.entry.request_id, self._line.now_ns()):
            self._line.changed(self.entry.model)

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_Future = asyncio.Future["Ticket | None"]


@dataclass(slots=True)
class _Live:
    """One model's pool, and who waits in it. None as a result says that patience ran out."""

    pool: Pool
    waiting: dict[str, _Future] = field(default_factory=dict)


class Line:
    """The lines of all models. `slots(model)` is how many requests may run at once on its replicas.

    That counts all slots of replicas that are ready, less those that others than this line hold.
    Whoever knows that it changed calls `changed(model)`. `rates(model)` is what the step-time model
    says of the replicas; where it says nothing, the line measures.
    """

    def __init__(
        self,
        slots: Callable[[str], int],
        *,
        classes: Classes = CLASSES,
        bounds: Bounds | None = None,
        rates: Callable[[str], PoolRates | None] = lambda _: None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.now_ns = now_ns
        self._slots = slots
        self._classes = classes
        self._bounds = bounds
        self._rates = rates
        self._pools: dict[str, _Live] = {}
        self._draining = False

    async def enter(self, entry: Entry) -> Ticket:
        """Wait for a slot. Leaves the queue at once where the caller is cancelled.

        Raises ApiError 429 where it would wait longer than its class allows, did so, or the queue
        is full; 503 where the gateway is stopping.
        """
        if self._draining:
            raise ApiError(503, "The gateway is stopping. Try again.", headers={"Retry-After": "1"})
        live = self._pools.get(entry.model)
        if live is None:
            live = self._pools[entry.model] = _Live(Pool(self._classes, self._bounds))
        pool, capacity, now_ns = live.pool, self._slots(entry.model), self.now_ns()
        verdict = pool.enter(entry, capacity, now_ns, self._rates(entry.model))
        if isinstance(verdict, Refuse):
            raise _refused(entry, verdict)
        if not live.waiting:
            pick = pool.pick(capacity, now_ns)
            if isinstance(pick, Pick):
                return Ticket(self, live, pick)  # nobody else waited
        return await self._wait(live, entry)

    def changed(self, model: str) -> None:
        """Slots may be free: give them to who is next."""
        live = self._pools.get(model)
        if live is None:
            return
        while live.waiting:
            pick = live.pool.pick(self._slots(model), self.now_ns())
            if isinstance(pick, Nobody):
                return
            future = live.waiting.pop(pick.entry.request_id)
            if future.done():  # it is leaving, and does not know yet that it was picked
                live.pool.queue.undo(pick.entry.request_id)
            else:
                future.set_result(Ticket(self, live, pick))

    def drain(self) -> None:
        """Nobody enters any more; who waits still gets a slot."""
        self._draining = True

    @property
    def queued(self) -> int:
        """Requests that wait, for any model."""
        return sum(live.pool.queue.queued for live in self._pools.values())

    @property
    def in_flight(self) -> int:
        """Requests that wait or hold a slot."""
        return self.queued + sum(live.pool.queue.running for live in self._pools.values())

    def snapshot(self) -> list[PoolView]:
        """Every model's line as it is now."""
        now_ns = self.now_ns()
        views = []
        for model, live in sorted(self._pools.items()):
            queue, capacity = live.pool.queue, self._slots(model)
            views.append(
                PoolView(
                    model,
                    capacity,
                    queue.slots,
                    queue.queued_bytes,
                    live.pool.output_share,
                    self._rates(model) or live.pool.rates(capacity),
                    tuple(_class_view(lane, now_ns) for lane in queue.lanes),
                )
            )
        return views

    async def _wait(self, live: _Live, entry: Entry) -> Ticket:
        loop = asyncio.get_running_loop()
        future: _Future = loop.create_future()
        live.waiting[entry.request_id] = future
        patience_s = live.pool.queue.lane(entry).spec.patience_s
        timer = loop.call_later(patience_s, partial(_expire, future))
        try:
            self.changed(entry.model)  # it may fit where those before it do not
            ticket = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and (given := future.result()):
                given.close()
            raise
        finally:
            timer.cancel()
            self._left(live, entry)
        if ticket is None:
            capacity, rates = self._slots(entry.model), self._rates(entry.model)
            raise _refused(entry, live.pool.expire(entry, capacity, rates))
        return ticket

    def _left(self, live: _Live, entry: Entry) -> None:
        """Whoever does not wait any more, for whatever reason, is not in the queue either."""
        live.waiting.pop(entry.request_id, None)
        if live.pool.leave(entry.request_id):
            self.changed(entry.model)  # slots may have been kept for it


def _expire(future: _Future) -> None:
    if not future.done():
        future.set_result(None)


def _refused(entry: Entry, verdict: Refuse) -> ApiError:
    after_s = max(1, math.ceil(verdict.retry_after_s))
    return ApiError(
        429,
        f"The model `{entry.model}` is too busy: {verdict.reason}. Try again in {after_s} s.",
        code="queue_full",
        headers={"Retry-After": str(after_s)},
    )


def _class_view(lane: Lane, now_ns: int) -> ClassView:
    tenants = tuple(
        FlowView(
            flow.tenant,
            len(flow.queue),
            flow.running,
            flow.counter,
            (now_ns - flow.head.since_ns) / NS if flow.queue else 0.0,
        )
        for flow in lane.counters.flows.values()
    )
    return ClassView(
        lane.spec.name,
        lane.queued,
        lane.running,
        lane.slots,
        max((each.oldest_wait_s for each in tenants), default=0.0),
        lane.counters.gap(),
        lane.counters.gap_bound,
        tenants,
    )
