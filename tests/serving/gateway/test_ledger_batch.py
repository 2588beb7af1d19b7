from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, delete, select

from ridgeline.serving.gateway.ledger_batch import (
    Aside,
    Batch,
    Calendar,
    Dispatched,
    Ended,
    Operation,
    Reserve,
    Settle,
    Streamed,
)
from ridgeline.serving.gateway.ledger_rows import (
    Actual,
    Reservation,
    nano,
    price_text,
    subjects,
)
from ridgeline.serving.gateway.ledger_sql import Sql
from ridgeline.serving.policy.limits import Account, Budget, Limits
from ridgeline.serving.policy.price import Price, most
from ridgeline.store.database import open_store, reading, writing
from ridgeline.store.tables import accounts, entries, reservations

NS = 1_000_000_000
NOON_NS = 1_800_014_400 * NS
PRICE = Price(Decimal(1000), Decimal(100), Decimal(10_000))
DAILY = Budget(Decimal(2), "day", "UTC")
MONTHLY = Budget(Decimal(3), "month", "Asia/Kolkata")
ALL_LIMITS = (
    Limits(),
    Limits(requests_per_minute=3, concurrent=2),
    Limits(input_tokens_per_minute=200, output_tokens_per_minute=100),
    Limits(budget=DAILY),
    Limits(budget=MONTHLY, concurrent=4),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = open_store("sqlite:///:memory:")
    yield engine
    engine.dispose()


def reserve(name: str, tenant: str, key: str, inputs: int, outputs: int, limits: Limits) -> Reserve:
    cost_nano = nano(most(PRICE, inputs, outputs))
    row = Reservation(
        name, "w", tenant, key, "m", "chat", inputs, outputs, cost_nano, price_text(PRICE)
    )
    return Reserve(row, (limits, Limits()))


@dataclass
class Outcome:
    answers: list[object]
    entries: list[Any]
    reservations: list[Any]
    accounts: dict[str, Account]


def run(engine: Engine, batches: Sequence[tuple[int, Sequence[Operation]]]) -> Outcome:
    """All batches, each in its transaction at its time, on an empty database."""
    with writing(engine) as connection:
        for table in (accounts, entries, reservations):
            connection.execute(delete(table))
    answers: list[object] = []
    calendar = Calendar()
    for now_ns, operations in batches:
        with writing(engine) as connection:
            batch = Batch(connection, Sql(connection), calendar, lambda at=now_ns: at)  # type: ignore[misc]
            answers += batch.run(operations)
    with reading(engine) as connection:
        states = connection.execute(select(accounts)).all()
        return Outcome(
            answers,
            [row[1:] for row in connection.execute(select(entries).order_by(entries.c.id))],
            list(connection.execute(select(reservations).order_by(reservations.c.request_id))),
            {name: msgspec.json.decode(state, type=Account) for name, state in states},
        )


names = st.integers(0, 5).map(lambda number: f"req-{number}")
tokens = st.integers(0, 60)


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, list[Operation]]]:
    """Batches of operations on a few requests of two tenants with three keys."""
    now_ns, batches = NOON_NS, []
    reserved: dict[str, tuple[str, str]] = {}
    for number in range(draw(st.integers(1, 12))):
        now_ns += draw(st.sampled_from([0, NS, 30 * NS, 13 * 3600 * NS]))
        operations: list[Operation] = []
        for at in range(draw(st.integers(1, 6))):
            kind = draw(st.sampled_from(["reserve", "reserve", "settle", "release", "note"]))
            if kind == "reserve":
                name = f"req-{number}-{at}"
                tenant, key = draw(st.sampled_from([("a", "k1"), ("a", "k2"), ("b", "k3")]))
                limits = draw(st.sampled_from(ALL_LIMITS))
                operations.append(reserve(name, tenant, key, draw(tokens), draw(tokens), limits))
                reserved[name] = (tenant, key)
            elif reserved:
                name = draw(st.sampled_from(sorted(reserved)))
                of = subjects(*reserved[name])
                actual = Actual("r", 200, draw(tokens), draw(tokens), draw(tokens), "usage")
                if kind == "settle":
                    operations.append(Settle(name, of, actual))
                elif kind == "release":
                    operations.append(Settle(name, of, None))
                else:
                    operations.append(Streamed([(draw(tokens), name)]))
                    operations.append(Dispatched(name, "r", "[]"))
        batches.append((now_ns, operations))
    return batches


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(schedules())
def test_a_batch_decides_as_if_each_operation_had_a_transaction_of_its_own(
    engine: Engine, schedule: list[tuple[int, list[Operation]]]
) -> None:
    singly = [(now_ns, [one]) for now_ns, operations in schedule for one in operations]
    assert run(engine, schedule) == run(engine, singly)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(schedules())
def test_accounts_say_what_the_rows_say(
    engine: Engine, schedule: list[tuple[int, list[Operation]]]
) -> None:
    outcome = run(engine, schedule)
    for name, account in outcome.accounts.items():
        kind, _, who = name.partition(":")
        column = "tenant" if kind == "tenant" else "key_id"
        held = [row for row in outcome.reservations if getattr(row, column) == who]
        # An entry's row has lost its first column: tenant and key are the next two.
        spent = [row for row in outcome.entries if row[1 if kind == "tenant" else 2] == who]
        assert account.open == len(held)
        assert account.held_output_tokens == sum(row.output_tokens for row in held)
        if account.period:
            in_period = [row.usd for row in held if account.period.holds(row.began_ns)]
            assert account.held_usd == sum(in_period)
            assert account.spent_usd == sum(
                row[10] for row in spent if account.period.holds(row[12])
            )


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(schedules())
def test_every_reservation_ends_in_one_entry_in_none_or_is_still_there(
    engine: Engine, schedule: list[tuple[int, list[Operation]]]
) -> None:
    outcome = run(engine, schedule)
    operations = [operation for _, batch in schedule for operation in batch]
    granted = {
        operation.row.request_id
        for operation, answer in zip(operations, outcome.answers, strict=True)
        if isinstance(operation, Reserve) and answer is None
    }
    charged = [row[0] for row in outcome.entries]
    still_open = {row.request_id for row in outcome.reservations}
    assert len(charged) == len(set(charged))
    assert set(charged) | still_open <= granted
    assert not set(charged) & still_open


def test_a_reservation_written_in_the_middle_of_a_batch_can_be_settled_in_it(
    engine: Engine,
) -> None:
    def look(connection: Connection, now_ns: int) -> int:
        return len(connection.execute(select(reservations)).all())

    settled = Settle("req-1", subjects("a", "k1"), Actual("r", 200, 5, 0, 6, "usage"))
    batch = [reserve("req-1", "a", "k1", 5, 6, Limits()), Aside(look), settled, Ended("req-1", 499)]
    outcome = run(engine, [(NOON_NS, batch)])
    assert outcome.answers[1] == 1
    assert outcome.answers[2] is not None
    assert len(outcome.entries) == 1
    assert outcome.reservations == []
    assert outcome.accounts["tenant:a"].open == 0


def test_money_held_by_what_is_settled_later_in_the_same_batch_is_known(engine: Engine) -> None:
    """A budget appears while a request runs that the batch settles after it."""
    before = [(NOON_NS, [reserve("req-1", "a", "k1", 0, 60, Limits())])]
    limits = Limits(budget=Budget(Decimal("0.9"), "day", "UTC"))
    settled = Settle("req-1", subjects("a", "k1"), Actual("r", 200, 0, 0, 10, "usage"))
    batch = [reserve("req-2", "a", "k1", 0, 60, limits), settled]
    outcome = run(engine, [*before, (NOON_NS, batch)])
    assert outcome.answers[1] is not None, "0.6 USD were held, and 0.6 more pass 0.9"
    assert outcome.accounts["tenant:a"].held_usd == 0
    assert outcome.accounts["tenant:a"].spent_usd == Decimal("0.1")
