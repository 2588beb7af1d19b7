"""The ledger as the gateway sees it: reserve before a request runs, settle when it has ended.

    reserve ─▶ committed ─▶ dispatched … streamed … ─▶ settle ─▶ an entry, charged once
                    │                                └▶ release ─▶ nothing
                    └─ the client left, the replica or this worker died ─▶ `recovery` settles it

What a request may use is in the database before the request is sent, so a worker that dies loses
no charge. What may be late (where a request was sent, how far its stream came) goes along with the
next commit, within a second. `ledger_writer` commits, `ledger_batch` decides.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update

from ridgeline.errors import StoreError
from ridgeline.serving.gateway.ledger_batch import (
    Aside,
    Decided,
    Dispatched,
    Ended,
    Operation,
    Refusal,
    Reserve,
    Settle,
    Streamed,
)
from ridgeline.serving.gateway.ledger_rows import (
    Actual,
    Ask,
    Attempt,
    Decision,
    Entry,
    Reservation,
    attempts_text,
    nano,
    price_text,
)
from ridgeline.serving.gateway.ledger_writer import Waiting, Writer
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.limits import Never
from ridgeline.serving.policy.price import most
from ridgeline.store.tables import decisions, reservations, workers

_LOG = logging.getLogger(__name__)
_NS = 1_000_000_000
_KEEP_DECISIONS_NS = 24 * 3600 * _NS
_KEEP_DECISIONS = 100_000
_PRUNE_NS = 60 * _NS
#: A settlement waits so long for a commit to share: a lone client's next reservation, most often.
#: A worker that dies meanwhile leaves a reservation, which the recovery settles (decisions/0022).
_SETTLE_WITHIN_S = 0.004
_UNAVAILABLE_RETRY_S = "2"


@dataclass(slots=True)
class _Running:
    """A request between its reservation and its end."""

    subjects: tuple[str, str]
    attempts: list[Attempt] = field(default_factory=list)


class Ledger:
    """One worker's access to the ledger that all workers share.

    `worker` must be a name that no other process has or had. While the worker lives it renews its
    lease; who lets it run out has its reservations settled by the others (`recovery`).
    """

    def __init__(
        self,
        engine: Engine,
        worker: str,
        *,
        clock: Callable[[], int] = time.time_ns,
        lease_s: float = 10.0,
        tick_s: float = 1.0,
    ) -> None:
        self.worker = worker
        self.clock = clock
        self._engine = engine
        self._lease_ns = int(lease_s * _NS)
        self._tick_s = tick_s
        self._renewed_ns = 0
        self._pruned_ns = 0
        self._running: dict[str, _Running] = {}
        #: Goes with the next commit.
        self._riding: list[Operation] = []
        self._streamed: dict[str, int] = {}
        #: Goes to the writer at the end of this turn of the loop (`_soon`), or a little later.
        self._waiting: list[Waiting] = []
        self._soon = False
        #: Could not be committed, and must be.
        self._owed: list[Operation] = []
        self._writer: Writer | None = None
        self._ticking: asyncio.Task[None] | None = None
        #: Called from the writer's thread with the operations of a commit and its seconds.
        self.on_commit: Callable[[int, float], None] = lambda *_: None

    @property
    def open_requests(self) -> int:
        """Requests of this worker that are reserved and have not ended."""
        return len(self._running)

    async def open(self) -> None:
        """Take a lease and begin; StoreError where the database cannot be written."""
        self._writer = Writer(self._engine, self.clock, self.on_commit)
        await self._done(Aside(self._renew))
        self._renewed_ns = self._pruned_ns = self.clock()
        self._ticking = asyncio.create_task(self._tick_for_ever())

    async def close(self) -> None:
        """Write what is left and give the lease back; what still runs is for the others."""
        assert self._writer is not None, "not open"
        assert self._ticking is not None, "not open"
        self._ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticking
        self.tick()
        with contextlib.suppress(StoreError):  # it was logged; the lease runs out by itself
            await self._done(Aside(self._leave))
        await self._writer.close()
        self._writer = None

    async def reserve(self, ask: Ask) -> None:
        """Keep what a request may use. Raises ApiError: 429 "later", 400 "never", 503."""
        assert ask.request_id not in self._running, ask.request_id
        caller = ask.caller
        row = self._row(ask)
        self._running[ask.request_id] = _Running(row.subjects)
        try:
            refusal = await self._done(Reserve(row, (caller.tenant_limits, caller.key_limits)))
        except BaseException as error:
            del self._running[ask.request_id]
            if isinstance(error, StoreError | asyncio.CancelledError):
                # It may have been committed all the same: then it is undone.
                self._owe(Settle(ask.request_id, row.subjects, None))
            if isinstance(error, StoreError):
                raise _unavailable() from error
            raise
        if refusal is not None:
            del self._running[ask.request_id]
            raise refused(refusal)

    def dispatched(self, request_id: str, replica: str, attempt: str) -> None:
        """A request goes to a replica, under the id `attempt`."""
        if running := self._running.get(request_id):
            running.attempts.append(Attempt(attempt, replica))
            text = attempts_text(running.attempts)
            self._riding.append(Dispatched(request_id, replica, text))

    def streamed(self, request_id: str, tokens: int) -> None:
        """So many tokens went to the client in all."""
        if request_id in self._running:
            self._streamed[request_id] = tokens

    async def settle(self, request_id: str, actual: Actual) -> Entry | None:
        """Charge a request; None where it was settled before, or cannot be charged just now.

        Once called it is done even where the database fails for a while, or nobody waits.
        """
        return await self._end(request_id, actual)

    async def release(self, request_id: str) -> None:
        """Forget a request that used nothing."""
        await self._end(request_id, None)

    async def end_unknown(self, request_id: str, status: int) -> None:
        """A request has ended, and what it used has to be found out."""
        if self._running.pop(request_id, None):
            if tokens := self._streamed.pop(request_id, 0):
                self._riding.append(Streamed([(tokens, request_id)]))
            await self._certainly(Ended(request_id, status))

    def record_decision(self, request_id: str, tenant: str, detail: bytes) -> None:
        """Keep why a request went where it went (JSON), for a day."""
        row = Decision(request_id, tenant, self.clock(), detail.decode())
        self._riding.append(Decided(row))

    async def recover(self, row: Reservation, actual: Actual | None) -> Entry | None:
        """Settle a reservation that `orphans` gave; nothing where another one did it first."""
        entry: Entry | None = await self._done(Settle(row.request_id, row.subjects, actual))
        return entry

    async def orphans(self) -> list[Reservation]:
        """Ended requests of unknown use: this worker's, and those of workers that are gone."""
        rows: list[Reservation] = await self._done(Aside(self._claim))
        return rows

    def tick(self) -> None:
        """What is due by the clock: counts of streams, the lease, old decisions, what is owed."""
        now_ns = self.clock()
        if self._streamed:
            counts, self._streamed = self._streamed, {}
            self._riding.append(Streamed([(tokens, name) for name, tokens in counts.items()]))
        if now_ns - self._renewed_ns >= self._lease_ns // 5:
            self._renewed_ns = now_ns
            self._riding.append(Aside(self._renew))
        if now_ns - self._pruned_ns >= _PRUNE_NS:
            self._pruned_ns = now_ns
            self._riding.append(Aside(_prune))
        owed, self._owed = self._owed, []
        for operation in owed:
            self._owe(operation)
        if self._riding:
            self._submit(None, None)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self.tick()

    def _row(self, ask: Ask) -> Reservation:
        cost_usd = most(ask.price, ask.input_tokens, ask.output_tokens)
        return Reservation(
            ask.request_id,
            self.worker,
            ask.caller.tenant,
            ask.caller.key_id,
            ask.model,
            ask.endpoint,
            ask.input_tokens,
            ask.output_tokens,
            nano(cost_usd),
            price_text(ask.price),
        )

    async def _end(self, request_id: str, actual: Actual | None) -> Entry | None:
        running = self._running.pop(request_id, None)
        self._streamed.pop(request_id, None)
        if running is None:
            return None
        entry: Entry | None = await self._certainly(Settle(request_id, running.subjects, actual))
        return entry

    async def _certainly(self, operation: Operation) -> Any:
        """The answer, or None after a failure: then it is tried again until it is committed."""
        future = self._owe(operation)
        await asyncio.wait((future,))
        return None if future.exception() else future.result()

    def _owe(self, operation: Operation) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(partial(self._maybe_again, operation))
        self._submit(operation, future)
        return future

    def _maybe_again(self, operation: Operation, future: "asyncio.Future[Any]") -> None:
        if isinstance(future.exception(), StoreError):
            self._owed.append(operation)

    async def _done(self, operation: Operation) -> Any:
        future = asyncio.get_running_loop().create_future()
        self._submit(operation, future)
        return await future

    def _submit(self, operation: Operation | None, future: "asyncio.Future[Any] | None") -> None:
        assert self._writer is not None, "not open"
        riding, self._riding = self._riding, []
        if isinstance(operation, Settle):
            if not self._waiting:
                asyncio.get_running_loop().call_later(_SETTLE_WITHIN_S, self._flush)
        elif not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting += [(one, None) for one in riding]
        if operation is not None:
            self._waiting.append((operation, future))

    def _flush(self) -> None:
        """All that was submitted in this turn of the loop, at once: fewer and larger commits."""
        self._soon = False
        waiting, self._waiting = self._waiting, []
        if waiting and self._writer is not None:
            self._writer.submit(waiting)

    def _renew(self, connection: Connection, now_ns: int) -> None:
        until_ns = now_ns + self._lease_ns
        renewed = update(workers).where(workers.c.id == self.worker).values(until_ns=until_ns)
        if not connection.execute(renewed).rowcount:
            row = {"id": self.worker, "until_ns": until_ns, "detail": "{}"}
            connection.execute(insert(workers).values(row))

    def _leave(self, connection: Connection, _now_ns: int) -> None:
        connection.execute(delete(workers).where(workers.c.id == self.worker))

    def _claim(self, connection: Connection, now_ns: int) -> list[Reservation]:
        """Take over what belongs to nobody that lives. Whoever comes second finds it taken."""
        connection.execute(
            delete(workers).where(workers.c.until_ns < now_ns, workers.c.id != self.worker)
        )
        gone = reservations.c.worker.not_in(select(workers.c.id))
        taken = {"worker": self.worker}
        connection.execute(
            update(reservations)
            .where(gone, reservations.c.ended_ns.is_(None))
            .values(taken | {"ended_ns": now_ns})
        )
        connection.execute(update(reservations).where(gone).values(taken))
        mine = (reservations.c.worker == self.worker) & reservations.c.ended_ns.is_not(None)
        rows = connection.execute(select(reservations).where(mine)).all()
        return [Reservation._make((*row[:8], nano(row.usd), *row[9:])) for row in rows]


class LimitError(ApiError):
    """A limit has no room; `limit` is its name, for whoever counts."""

    def __init__(self, limit: str, status: int, message: str, **told: Any) -> None:
        super().__init__(status, message, **told)
        self.limit = limit


def refused(refusal: Refusal) -> LimitError:
    """The answer to a request for which a limit has no room."""
    subject, decision = refusal
    whose = "tenant" if subject.startswith("tenant:") else "key"
    text = f"The {whose}'s limit {decision.limit} has no room: {decision.reason}."
    if isinstance(decision, Never):
        is_output = decision.limit.startswith("output")
        return LimitError(
            decision.limit,
            400,
            f"{text} Waiting does not help: ask for less, or have the limit raised.",
            param="max_tokens" if is_output else None,
            code="request_too_large",
        )
    retry_s = max(1, math.ceil(decision.retry_after_s))
    return LimitError(
        decision.limit,
        429,
        f"{text} Try again in {retry_s} s.",
        code="insufficient_quota" if decision.limit == "budget" else "rate_limit_exceeded",
        headers={"Retry-After": str(retry_s)},
    )


def _unavailable() -> ApiError:
    return ApiError(
        503,
        "The gateway cannot write to its ledger just now, so it takes no requests. "
        f"Try again in {_UNAVAILABLE_RETRY_S} s.",
        code="ledger_unavailable",
        headers={"Retry-After": _UNAVAILABLE_RETRY_S},
    )


def _prune(connection: Connection, now_ns: int) -> None:
    """Delete decisions that are old, or too many."""
    newest = decisions.c.at_ns.desc()
    last = connection.scalar(
        select(decisions.c.at_ns).order_by(newest).offset(_KEEP_DECISIONS).limit(1)
    )
    until_ns = max(now_ns - _KEEP_DECISIONS_NS, -1 if last is None else last)
    connection.execute(delete(decisions).where(decisions.c.at_ns <= until_ns))
