"""What each replica did, minute by minute: the hours that `ridgeline cost` shares out.

The fleet reports what it sees (`saw`); once a minute whole minutes are written. Where several
workers see the same replica the first to write a minute is believed, so each must be told of all
requests there, also of others' (the replica says how many). Time is Unix nanoseconds.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import postgresql, sqlite

from ridgeline.errors import StoreError
from ridgeline.serving.policy.states import State
from ridgeline.store.database import writing
from ridgeline.store.tables import replica_minutes

MINUTE_NS = 60_000_000_000
#: A longer silence than this is a clock that was set, not a replica that we watched.
_MOST_SILENCE_NS = 86_400_000_000_000
#: Minutes kept while the database cannot be written: a day of eight replicas.
_MOST_KEPT = 8 * 1440

_log = logging.getLogger(__name__)


class Doing(IntEnum):
    """What a replica's time is paid for; also its place in a minute's row."""

    BUSY = 0  # at least one request is there, also while it drains
    IDLE = 1
    LOADING = 2  # not ready: starting, loading, or down
    DRAINED = 3  # takes nothing new, and nothing runs


def doing(state: State, in_flight: int) -> Doing | None:
    """None where it is gone and costs nothing."""
    match state:
        case State.STOPPED:
            return None
        case State.STARTING | State.LOADING | State.DOWN:
            return Doing.LOADING
        case State.READY:
            return Doing.BUSY if in_flight else Doing.IDLE
        case State.DRAINING | State.EMPTY:
            return Doing.BUSY if in_flight else Doing.DRAINED


@dataclass(slots=True)
class Minutes:
    """Nanoseconds of each replica by minute and by what it did. Pure; its clock is passed in."""

    _since: dict[str, tuple[Doing, int]] = field(default_factory=dict)
    _spent: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def saw(self, replica: str, now: Doing | None, now_ns: int) -> None:
        """From here on it does this; None: it is gone."""
        before = self._since.get(replica)
        if before is not None:
            if before[0] is now:
                return
            self._add(replica, *before, now_ns)
        if now is None:
            self._since.pop(replica, None)
        else:
            self._since[replica] = (now, now_ns)

    def take(self, now_ns: int, *, also_this_minute: bool = False) -> dict[tuple[str, int], Any]:
        """The minutes that are over, for (replica, minute) the four spans; they are given once."""
        for replica, (what, since_ns) in self._since.items():
            self._add(replica, what, since_ns, now_ns)
            self._since[replica] = (what, now_ns)
        until = now_ns // MINUTE_NS + also_this_minute
        over = [key for key in self._spent if key[1] < until]
        return {key: self._spent.pop(key) for key in over}

    def _add(self, replica: str, what: Doing, since_ns: int, until_ns: int) -> None:
        if until_ns - since_ns > _MOST_SILENCE_NS:
            return
        while since_ns < until_ns:
            minute = since_ns // MINUTE_NS
            end_ns = min(until_ns, (minute + 1) * MINUTE_NS)
            spent = self._spent.setdefault((replica, minute), [0, 0, 0, 0])
            spent[what] += end_ns - since_ns
            since_ns = end_ns


@dataclass(slots=True)
class ReplicaTime:
    """Watches replicas and writes their minutes: `joined`, `saw`, and `run` as a task."""

    store: Engine
    _prices: dict[str, tuple[str, Decimal]] = field(default_factory=dict)
    _minutes: Minutes = field(default_factory=Minutes)
    _unwritten: list[dict[str, Any]] = field(default_factory=list)

    def joined(self, replica: str, model: str, usd_per_hour: Decimal) -> None:
        """What it serves and costs; known before it is seen."""
        self._prices[replica] = (model, usd_per_hour)

    def saw(self, replica: str, state: State, in_flight: int, now_ns: int) -> None:
        """Its state, and the requests there: ours and others'. Cheap where nothing changed."""
        self._minutes.saw(replica, doing(state, in_flight), now_ns)

    async def run(self) -> None:
        """Write each minute when it is over, until cancelled; then what there is of the last."""
        try:
            while True:
                now_ns = time.time_ns()
                await asyncio.sleep((MINUTE_NS - now_ns % MINUTE_NS) / 1e9 + 0.05)
                self._take(time.time_ns())
                await asyncio.to_thread(self.write)
        finally:
            self._take(time.time_ns(), also_this_minute=True)
            self.write()

    def _take(self, now_ns: int, *, also_this_minute: bool = False) -> None:
        taken = self._minutes.take(now_ns, also_this_minute=also_this_minute)
        self._unwritten += (self._row(*key, spent) for key, spent in taken.items())
        del self._unwritten[:-_MOST_KEPT]

    def _row(self, replica: str, minute: int, spent: list[int]) -> dict[str, Any]:
        model, usd_per_hour = self._prices.get(replica, ("", Decimal(0)))
        return {
            "replica": replica,
            "minute": minute,
            "model": model,
            "usd_per_hour": usd_per_hour,
            "busy_ns": spent[Doing.BUSY],
            "idle_ns": spent[Doing.IDLE],
            "loading_ns": spent[Doing.LOADING],
            "draining_ns": spent[Doing.DRAINED],
        }

    def write(self) -> None:
        """What was taken, to the database; what it does not take now is tried again later."""
        rows = list(self._unwritten)
        if not rows:
            return
        try:
            write_minutes(self.store, rows)
        except StoreError as error:
            _log.warning("minutes of replicas wait to be written: %s", error)
            return
        del self._unwritten[: len(rows)]


def write_minutes(store: Engine, rows: Iterable[dict[str, Any]]) -> None:
    """Rows of `replica_minutes`; a minute that is there already stays as it is."""
    if not (rows := list(rows)):
        return
    dialect = postgresql if store.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(replica_minutes).on_conflict_do_nothing()
    with writing(store) as connection:
        connection.execute(insert, rows)
