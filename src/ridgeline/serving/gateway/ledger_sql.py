"""The statements that run for every request, compiled once for a kind of database.

Many requests share a transaction, so what remains is the cost of each statement in Python: these
go to the driver as text with tuples, and a batch needs one of each whatever its size. Statements
that run seldom are written where they are used.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    Column,
    Connection,
    String,
    any_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.elements import ColumnElement

from ridgeline.serving.gateway.ledger_rows import Entry, Reservation
from ridgeline.store.tables import accounts, decisions, entries, reservations

_ID = "request"
_ENTRY_COLUMNS = [column.name for column in entries.c if column.name != "id"]


class Sql:
    """The ledger's frequent statements on a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._text = _texts(connection.dialect.name)
        self._postgres = connection.dialect.name == "postgresql"

    def accounts(self, subjects: Iterable[str]) -> dict[str, str]:
        """The states of these accounts, which nobody else changes before this transaction ends."""
        wanted = sorted(subjects)
        found = self._states(wanted)
        missing = [subject for subject in wanted if subject not in found]
        if missing and self._postgres:
            # A row that is not there cannot be locked: two workers would both begin from nothing.
            self._many("ensure", [(subject, "{}") for subject in missing])
            found |= self._states(missing)
        return found

    def write_accounts(self, states: Sequence[tuple[str, str]]) -> None:
        """The new states."""
        self._many("write", sorted(states))

    def reserve(self, rows: Sequence[Reservation]) -> None:
        """Add reservations."""
        self._many("reserve", rows)

    def take(self, request_ids: Sequence[str]) -> dict[str, Reservation]:
        """Remove reservations, and say which were there: who gets one is the one who settles it."""
        if not request_ids:
            return {}
        cursor = self._connection.exec_driver_sql(self._text["take"], (self._list(request_ids),))
        return {row[0]: Reservation(*row) for row in cursor.fetchall()}

    def enter(self, rows: Sequence[Entry]) -> None:
        """Append to the ledger."""
        self._many("enter", rows)

    def dispatched(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Note replica and attempts, by request id."""
        self._many("dispatched", rows)

    def streamed(self, rows: Sequence[tuple[int, str]]) -> None:
        """Note how many tokens went to the client, by request id."""
        self._many("streamed", rows)

    def ended(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Note status and end of requests of which nobody knows yet what they used, by id."""
        self._many("ended", rows)

    def decide(self, rows: Sequence[tuple[str, str, int, str]]) -> None:
        """Keep why requests went where they went; of two for a request the later counts."""
        self._many("decide", rows)

    def _states(self, subjects: Sequence[str]) -> dict[str, str]:
        cursor = self._connection.exec_driver_sql(self._text["lock"], (self._list(subjects),))
        return {row[0]: row[1] for row in cursor.fetchall()}

    def _list(self, values: Sequence[str]) -> Any:
        return list(values) if self._postgres else json.dumps(list(values))

    def _many(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) == 1:
            self._connection.exec_driver_sql(self._text[name], tuple(rows[0]))
        elif rows:
            self._connection.exec_driver_sql(self._text[name], [tuple(row) for row in rows])


@cache
def _texts(dialect: str) -> dict[str, str]:
    """All statements as text with placeholders in the order of the rows above."""
    upsert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    account, decision = upsert(accounts), upsert(decisions)
    of_request = reservations.c.request_id == bindparam(_ID)
    noted = update(reservations).where(of_request)
    statements: dict[str, ClauseElement] = {
        "lock": select(accounts)
        .where(_among(accounts.c.subject, dialect))
        .order_by(accounts.c.subject)
        .with_for_update(),
        "ensure": account.on_conflict_do_nothing(),
        "write": account.on_conflict_do_update(
            index_elements=["subject"], set_={"state": account.excluded.state}
        ),
        "reserve": insert(reservations),
        "take": delete(reservations)
        .where(_among(reservations.c.request_id, dialect))
        .returning(*reservations.c),
        "enter": insert(entries).inline(),
        "dispatched": noted.values(replica=bindparam("at"), attempts=bindparam("ids")),
        "streamed": noted.values(streamed_tokens=bindparam("tokens")),
        "ended": noted.values(status=bindparam("code"), ended_ns=bindparam("end")),
        "decide": decision.on_conflict_do_update(
            index_elements=["request_id"],
            set_={"at_ns": decision.excluded.at_ns, "detail": decision.excluded.detail},
        ),
    }
    return {name: _compiled(name, statement, dialect) for name, statement in statements.items()}


def _among(column: Column[Any], dialect: str) -> ColumnElement[bool]:
    """Whether a column is among the values of one parameter, however many they are."""
    if dialect == "postgresql":
        return column == any_(bindparam("list", type_=ARRAY(String)))
    rows = func.json_each(bindparam("list")).table_valued("value")
    return column.in_(select(rows.c.value))


def _compiled(name: str, statement: ClauseElement, dialect: str) -> str:
    kind: Any = psycopg.dialect if dialect == "postgresql" else sqlite.dialect
    paramstyle = "format" if dialect == "postgresql" else "qmark"
    told: dict[str, Any] = {"dialect": kind(paramstyle=paramstyle)}
    if name == "enter":
        told["column_keys"] = _ENTRY_COLUMNS  # an entry's number is the database's business
    return str(statement.compile(**told))
