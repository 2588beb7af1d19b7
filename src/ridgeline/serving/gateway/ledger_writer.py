"""The thread that commits: each turn takes everything that waits into one transaction.

A commit costs the same for one operation as for a hundred, so under load requests share it, and
a lone request waits for nobody. SQLAlchemy blocks, and sees only this thread.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from ridgeline.serving.gateway.ledger_batch import Batch, Calendar, Operation
from ridgeline.serving.gateway.ledger_sql import Sql
from ridgeline.store.database import explained

_LOG = logging.getLogger(__name__)
#: Bounds how long the first of a batch waits for the last.
_MOST_AT_ONCE = 512
_TRIES = 5
_BUSY_S = 10.0
_LOOK_AGAIN_S = 0.0003
#: PostgreSQL's words for "another transaction was in the way: do it again".
_AGAIN = ("40001", "40P01", "55P03")


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


Waiting = tuple[Operation, "asyncio.Future[Any] | None"]


class Writer:
    """Commits operations in the order in which they are submitted.

    A failed transaction leaves nothing behind: its futures get StoreError, and the next one is
    tried as if nothing had been. Where one operation of many is at fault, the others succeed.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], int],
        on_commit: Callable[[int, float], None] = lambda *_: None,
    ) -> None:
        self._engine = engine
        self._on_commit = on_commit
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Sequence[Waiting] | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._sql: Sql | None = None
        self._calendar = Calendar()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    def submit(self, waiting: Sequence[Waiting]) -> None:
        """Have these done with the next commit; their futures get the answers."""
        self._queue.put(waiting)

    async def close(self) -> None:
        """Commit all that was submitted, then end."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            answers = self._answers([operation for operation, _ in waiting])
            futures = [
                (future, answer)
                for (_, future), answer in zip(waiting, answers, strict=True)
                if future is not None
            ]
            try:
                self._loop.call_soon_threadsafe(_resolve, futures)
            except RuntimeError:  # the loop was closed; who waited is gone
                _LOG.warning("the ledger outlived its event loop")
        self._disconnect()

    def _next(self) -> list[Waiting] | None:
        """All that waits; None at the end."""
        submitted = self._queue.get()
        if submitted is None:
            return None
        waiting = list(submitted)
        while len(waiting) < _MOST_AT_ONCE:
            try:
                submitted = self._queue.get_nowait()
            except queue.Empty:
                break
            if submitted is None:
                self._queue.put(None)  # the end comes again, after these
                break
            waiting.extend(submitted)
        return waiting

    def _answers(self, operations: Sequence[Operation]) -> list[object]:
        try:
            return self._commit(operations)
        except (OperationalError, InterfaceError) as error:
            told = self._told(error)
            _LOG.error("the ledger cannot be written: %s", told)
            return [_Failed(told)] * len(operations)
        except Exception as error:  # one operation's mistake must not be everybody's
            self._disconnect()
            if len(operations) > 1:
                return [self._answers([operation])[0] for operation in operations]
            _LOG.exception("an operation of the ledger failed: %r", type(operations[0]).__name__)
            return [_Failed(self._told(error))]

    def _told(self, error: Exception) -> Exception:
        try:
            with explained(self._engine):
                raise error
        except Exception as told:  # as it was raised, or in a user's words
            return told

    def _commit(self, operations: Sequence[Operation]) -> list[object]:
        for left in reversed(range(_TRIES)):
            try:
                connection, sql = self._connected()
                began_s = time.perf_counter()
                with _begun(connection):
                    batch = Batch(connection, sql, self._calendar, self._clock)
                    answers = batch.run(operations)
                self._tell(len(operations), time.perf_counter() - began_s)
                return answers
            except (OperationalError, InterfaceError) as error:
                self._disconnect()
                if not left or getattr(error.orig, "sqlstate", None) not in _AGAIN:
                    raise
        raise AssertionError("the last try returns or raises")

    def _tell(self, operations: int, took_s: float) -> None:
        """What was committed stays so, whatever is thought of it: else it would be done twice."""
        try:
            self._on_commit(operations, took_s)
        except Exception:  # whatever its observer does: the writer must live on
            _LOG.exception("a commit of the ledger could not be observed")

    def _connected(self) -> tuple[Connection, Sql]:
        if self._connection is None or self._sql is None:
            self._connection = self._engine.connect()
            self._sql = Sql(self._connection)
            if self._engine.dialect.name == "sqlite":
                # `_begun` waits. The setting is this connection's, which nobody else gets.
                self._connection.connection.cursor().execute("PRAGMA busy_timeout=0")
        return self._connection, self._sql

    def _disconnect(self) -> None:
        connection, self._connection, self._sql = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):  # it is broken: that is why
                connection.invalidate()
                connection.close()


def _begun(connection: Connection) -> RootTransaction:
    """A transaction that may write.

    Other workers hold SQLite's lock for a millisecond at a time. SQLite waits for it with pauses
    that grow to 100 ms: this looks more often, which keeps the tail short (decisions/0018).
    """
    patience_ns = time.monotonic_ns() + int(_BUSY_S * 1e9)
    while True:
        try:
            return connection.begin()
        except OperationalError as error:
            if "locked" not in str(error.orig) or time.monotonic_ns() > patience_ns:
                raise
        time.sleep(_LOOK_AGAIN_S)


def _resolve(futures: Sequence[tuple["asyncio.Future[Any]", object]]) -> None:
    for future, answer in futures:
        if future.done():  # who waited has left
            continue
        if isinstance(answer, _Failed):
            future.set_exception(answer.error)
        else:
            future.set_result(answer)
