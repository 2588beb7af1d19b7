"""What waits for the ledger, and one transaction that does all of it.

Operations are decided one after another, as if each had a transaction of its own; what they share
is the reading and writing around them:

    lock and read accounts ─▶ take what is settled ─▶ decide each in order ─▶ write all, once

`policy.limits` decides. A reservation is taken from its table by whoever settles it, which the
database allows once; so nothing is charged twice, whoever tries. Accounts are locked before
anything else and in one order, so that workers wait for one another and never in a circle.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec
from sqlalchemy import Connection, Table, func, select

from ridgeline.serving.gateway.ledger_rows import (
    Actual,
    Decision,
    Entry,
    Reservation,
    nano,
    price_of,
    usd,
)
from ridgeline.serving.gateway.ledger_sql import Sql
from ridgeline.serving.policy.limits import (
    Account,
    Budget,
    Granted,
    Later,
    Limits,
    Never,
    Use,
    begun,
    release,
    reserve,
    settle,
)
from ridgeline.serving.policy.periods import Period, period
from ridgeline.serving.policy.price import charge
from ridgeline.store.tables import entries, reservations

_ACCOUNT = msgspec.json.Decoder(Account)


@dataclass(slots=True)
class Reserve:
    """Keep what a request may use, if its tenant's and its key's limits have room for it.

    The answer is None, or the refusal with the subject whose limit it is.
    """

    row: Reservation
    limits: tuple[Limits, Limits]


@dataclass(slots=True)
class Settle:
    """Charge what a request has used; `actual` is None where it used nothing.

    The answer is the entry, or None where there is none: the request was settled already.
    """

    request_id: str
    subjects: tuple[str, str]
    actual: Actual | None


@dataclass(slots=True)
class Dispatched:
    """A request was sent to a replica; all its attempts so far."""

    request_id: str
    replica: str
    attempts: str


@dataclass(slots=True)
class Streamed:
    """How many tokens went to clients, by request id."""

    rows: list[tuple[int, str]]


@dataclass(slots=True)
class Ended:
    """A request has ended and nobody knows yet what it has used."""

    request_id: str
    status: int


@dataclass(slots=True)
class Decided:
    """Why a request went where it went."""

    row: Decision


@dataclass(slots=True)
class Aside:
    """Anything seldom; the answer is what it returns."""

    act: Callable[[Connection, int], object]


Operation = Reserve | Settle | Dispatched | Streamed | Ended | Decided | Aside
Refusal = tuple[str, Later | Never]


@dataclass(slots=True)
class _Writes:
    """What a transaction will write at its end."""

    reserved: dict[str, Reservation] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    dispatched: list[tuple[str, str, str]] = field(default_factory=list)
    streamed: list[tuple[int, str]] = field(default_factory=list)
    ended: list[tuple[int, int, str]] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)


class Calendar:
    """The periods that budgets are in; each is worked out once."""

    def __init__(self) -> None:
        self._periods: dict[tuple[str, str], Period] = {}

    def period(self, budget: Budget | None, now_ns: int) -> Period | None:
        """The budget's period around now."""
        if budget is None:
            return None
        name = budget.per, budget.timezone
        found = self._periods.get(name)
        if found is None or not found.holds(now_ns):
            found = self._periods[name] = period(*name, now_ns)
        return found


class Batch:
    """Operations in one transaction that the caller began and will commit."""

    def __init__(
        self, connection: Connection, sql: Sql, calendar: Calendar, clock: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._calendar = calendar
        self._clock = clock
        self._now_ns = 0
        self._accounts: dict[str, Account] = {}
        self._changed: set[str] = set()
        self._taken: dict[str, Reservation] = {}
        self._writes = _Writes()
        self._flushed: set[str] = set()

    def run(self, operations: Sequence[Operation]) -> list[object]:
        """The answer to each."""
        self._load(operations)
        # Only now: it may have taken a while until the accounts were ours.
        self._now_ns = self._clock()
        answers = [self._do(operation) for operation in operations]
        self._flush()
        self._sql.write_accounts(
            [(name, msgspec.json.encode(self._accounts[name]).decode()) for name in self._changed]
        )
        return answers

    def _load(self, operations: Sequence[Operation]) -> None:
        wanted: set[str] = set()
        settled: list[str] = []
        for operation in operations:
            if isinstance(operation, Reserve):
                wanted.update(operation.row.subjects)
            elif isinstance(operation, Settle):
                wanted.update(operation.subjects)
                settled.append(operation.request_id)
        if not wanted:
            return
        states = self._sql.accounts(wanted)
        for subject in wanted:
            state = states.get(subject)
            self._accounts[subject] = _ACCOUNT.decode(state) if state else Account()
        self._taken = self._sql.take(settled)

    def _do(self, operation: Operation) -> object:
        writes = self._writes
        match operation:
            case Reserve():
                return self._reserve(operation)
            case Settle():
                return self._settle(operation)
            case Dispatched(request_id, replica, attempts):
                writes.dispatched.append((replica, attempts, request_id))
            case Streamed(rows):
                writes.streamed.extend(rows)
            case Ended(request_id, status):
                writes.ended.append((status, self._now_ns, request_id))
            case Decided(row):
                writes.decided.append(row)
            case Aside(act):
                self._flush()
                return act(self._connection, self._now_ns)
        return None

    def _reserve(self, operation: Reserve) -> Refusal | None:
        row, now_ns = operation.row, self._now_ns
        most = row.held
        granted: list[Account] = []
        refusals: list[Refusal] = []
        for subject, limits in zip(row.subjects, operation.limits, strict=True):
            current = self._calendar.period(limits.budget, now_ns)
            account = self._account(subject, row, current)
            decision = reserve(account, limits, most, now_ns, current)
            if isinstance(decision, Granted):
                granted.append(decision.account)
            else:
                refusals.append((subject, decision))
        if refusals:
            return max(refusals, key=_longest)
        self._keep(row.subjects, granted)
        self._writes.reserved[row.request_id] = row._replace(began_ns=now_ns)
        return None

    def _settle(self, operation: Settle) -> Entry | None:
        name, now_ns = operation.request_id, self._now_ns
        row = self._writes.reserved.pop(name, None) or self._taken.pop(name, None)
        if row is None and name in self._flushed:
            row = self._sql.take([name]).get(name)
        if row is None:
            return None
        held, began_ns, actual = row.held, row.began_ns, operation.actual
        accounts = [self._accounts[subject] for subject in row.subjects]
        if actual is None:
            self._keep(row.subjects, [release(one, held, began_ns, now_ns) for one in accounts])
            return None
        entry = _entry(row, actual, now_ns)
        used = Use(entry.input_tokens, entry.output_tokens, usd(entry.nano_usd))
        self._keep(row.subjects, [settle(one, held, began_ns, used, now_ns) for one in accounts])
        self._writes.entries.append(entry)
        return entry

    def _keep(self, subjects: Sequence[str], accounts: Sequence[Account]) -> None:
        self._accounts.update(zip(subjects, accounts, strict=True))
        self._changed.update(subjects)

    def _account(self, subject: str, row: Reservation, current: Period | None) -> Account:
        """The account, which knows what was spent in the period even where it has just begun."""
        account = self._accounts[subject]
        if account.period == current:
            return account
        if current is None:
            account = begun(account, None)
        else:
            spent_usd, held_usd = self._known(subject, row, current)
            account = begun(account, current, held_usd=held_usd, spent_usd=spent_usd)
        self._keep((subject,), (account,))
        return account

    def _known(self, subject: str, row: Reservation, current: Period) -> tuple[Decimal, Decimal]:
        """Money spent and held in a period, by the rows: a budget set at noon counts the morning.

        `row` is a reservation of the subject.
        """
        self._flush()
        key_id = row.key_id if subject == row.subjects[1] else None
        spent_nano = self._sum(entries, row.tenant, key_id, current)
        held_nano = self._sum(reservations, row.tenant, key_id, current)
        # Out of its table already, and not settled before its turn.
        for taken in self._taken.values():
            if subject in taken.subjects and current.holds(taken.began_ns):
                held_nano += taken.nano_usd
        return usd(spent_nano), usd(held_nano)

    def _sum(self, table: Table, tenant: str, key_id: str | None, current: Period) -> int:
        rows = table.c
        where = [rows.tenant == tenant, rows.began_ns >= current.start_ns]
        where.append(rows.began_ns < current.end_ns)
        if key_id is not None:
            where.append(rows.key_id == key_id)
        return nano(self._connection.scalar(select(func.sum(rows.usd)).where(*where)) or Decimal(0))

    def _flush(self) -> None:
        """Write what was decided so far, except accounts."""
        writes, self._writes = self._writes, _Writes()
        self._flushed.update(writes.reserved)
        self._sql.reserve(list(writes.reserved.values()))
        self._sql.enter(writes.entries)
        self._sql.dispatched(writes.dispatched)
        self._sql.streamed(writes.streamed)
        self._sql.ended(writes.ended)
        self._sql.decide(writes.decided)


def _longest(refusal: Refusal) -> float:
    decision = refusal[1]
    return decision.retry_after_s if isinstance(decision, Later) else math.inf


def _entry(row: Reservation, actual: Actual, now_ns: int) -> Entry:
    cached_tokens = min(actual.cached_tokens, actual.input_tokens)
    cost_usd = charge(price_of(row.price), actual.input_tokens, cached_tokens, actual.output_tokens)
    return Entry(
        row.request_id,
        row.tenant,
        row.key_id,
        row.model,
        row.endpoint,
        actual.replica,
        actual.status,
        actual.input_tokens,
        cached_tokens,
        actual.output_tokens,
        nano(cost_usd),
        actual.basis,
        row.began_ns,
        row.ended_ns or now_ns,
    )
