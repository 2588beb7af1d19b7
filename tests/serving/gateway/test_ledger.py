import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, delete, func, select

from ridgeline.serving.gateway import ledger as ledger_module
from ridgeline.serving.gateway import ledger_writer
from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.gateway.ledger_rows import Actual, Ask
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.limits import Account, Budget, Limits
from ridgeline.serving.policy.price import Price
from ridgeline.store.database import open_store, reading, writing
from ridgeline.store.tables import accounts, decisions, entries, reservations, workers

NS = 1_000_000_000
NOON_NS = 1_800_014_400 * NS  # 2027-01-15 12:00 UTC
PRICE = Price(Decimal(1), Decimal("0.1"), Decimal(10))
WORKER = Path(__file__).parent / "ledger_worker.py"


class Clock:
    def __init__(self, now_ns: int = NOON_NS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * NS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    engine = open_store(store_url)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_engine(sqlite_url: str) -> Iterator[Engine]:
    engine = open_store(sqlite_url)
    yield engine
    engine.dispose()


@asynccontextmanager
async def opened(engine: Engine, clock: Clock, worker: str = "w1") -> AsyncIterator[Ledger]:
    """A ledger that ticks only when told to."""
    ledger = Ledger(engine, worker, clock=clock, tick_s=3600)
    await ledger.open()
    try:
        yield ledger
    finally:
        await ledger.close()


@pytest.fixture
async def ledger(engine: Engine, clock: Clock) -> AsyncIterator[Ledger]:
    async with opened(engine, clock) as ledger:
        yield ledger


def caller(limits: Limits | None = None, key: Limits | None = None) -> Caller:
    return Caller("acme", "k1", tenant_limits=limits or Limits(), key_limits=key or Limits())


def ask(request_id: str, who: Caller | None = None, inputs: int = 100, outputs: int = 50) -> Ask:
    return Ask(request_id, who or caller(), "m", "chat", inputs, outputs, PRICE)


def used(inputs: int = 100, outputs: int = 20, cached: int = 0) -> Actual:
    return Actual("r1", 200, inputs, cached, outputs, "usage")


def daily(usd: str) -> Limits:
    return Limits(budget=Budget(Decimal(usd), "day", "UTC"))


def rows(engine: Engine, table: Any) -> list[Any]:
    with reading(engine) as connection:
        return list(connection.execute(select(table)).all())


def account(engine: Engine, subject: str) -> Account:
    with reading(engine) as connection:
        state = connection.scalar(select(accounts.c.state).where(accounts.c.subject == subject))
    return msgspec.json.decode(state, type=Account)


async def committed(ledger: Ledger) -> None:
    """Everything that was submitted is in the database."""
    await ledger.orphans()


# ── reserve and settle ──


async def test_a_request_is_reserved_before_it_runs_and_charged_once_it_has(
    ledger: Ledger, engine: Engine, clock: Clock
) -> None:
    await ledger.reserve(ask("req-1"))
    (held,) = rows(engine, reservations)
    assert (held.worker, held.input_tokens, held.output_tokens) == ("w1", 100, 50)
    assert held.usd == Decimal("0.0006")
    assert held.began_ns == NOON_NS
    clock.advance(5)
    await ledger.settle("req-1", used(100, 20, cached=40))
    (entry,) = rows(engine, entries)
    assert rows(engine, reservations) == []
    assert (entry.request_id, entry.tenant, entry.key_id) == ("req-1", "acme", "k1")
    assert (entry.input_tokens, entry.cached_tokens, entry.output_tokens) == (100, 40, 20)
    assert entry.usd == Decimal("0.000264")  # 60 + 40 / 10 + 20 × 10 millionths
    assert (entry.began_ns, entry.ended_ns) == (NOON_NS, NOON_NS + 5 * NS)
    assert ledger.open_requests == 0


async def test_settling_twice_charges_once(ledger: Ledger, engine: Engine) -> None:
    await ledger.reserve(ask("req-1"))
    first, second = await asyncio.gather(
        ledger.settle("req-1", used()), ledger.settle("req-1", used())
    )
    assert first is not None
    assert second is None
    await ledger.release("req-1")
    await ledger.end_unknown("req-1", 499)
    assert len(rows(engine, entries)) == 1
    assert account(engine, "tenant:acme").open == 0


async def test_a_released_request_costs_nothing_and_cannot_be_settled(
    ledger: Ledger, engine: Engine
) -> None:
    await ledger.reserve(ask("req-1"))
    await ledger.release("req-1")
    assert await ledger.settle("req-1", used()) is None
    assert rows(engine, entries) == rows(engine, reservations) == []
    assert account(engine, "tenant:acme") == account(engine, "key:k1") == Account()


async def test_a_request_that_nobody_reserved_is_not_charged(
    ledger: Ledger, engine: Engine
) -> None:
    assert await ledger.settle("req-x", used()) is None
    assert rows(engine, entries) == []


async def test_an_explicit_zero_is_charged_as_zero(ledger: Ledger, engine: Engine) -> None:
    await ledger.reserve(ask("req-1"))
    await ledger.settle("req-1", used(0, 0))
    (entry,) = rows(engine, entries)
    assert (entry.usd, entry.input_tokens, entry.output_tokens) == (0, 0, 0)


async def test_many_at_once_are_decided_as_if_one_after_another(
    ledger: Ledger, engine: Engine
) -> None:
    who = caller(Limits(requests_per_minute=10))

    async def one(number: int) -> int:
        try:
            await ledger.reserve(ask(f"req-{number}", who))
        except ApiError as refusal:
            return int(refusal.status)
        await ledger.settle(f"req-{number}", used())
        return 200

    answers = await asyncio.gather(*(one(number) for number in range(50)))
    assert answers == [200] * 10 + [429] * 40
    assert len(rows(engine, entries)) == account(engine, "key:k1").window.requests == 10


# ── refusals ──


async def test_later_is_a_429_that_says_when(ledger: Ledger, clock: Clock) -> None:
    who = caller(Limits(requests_per_minute=1))
    await ledger.reserve(ask("req-1", who))
    clock.advance(20.5)
    with pytest.raises(ApiError, match="tenant's limit requests_per_minute") as refusal:
        await ledger.reserve(ask("req-2", who))
    assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")
    assert refusal.value.headers == {"Retry-After": "41"}
    clock.advance(41)
    await ledger.reserve(ask("req-3", who))


async def test_never_is_a_400_without_a_time(ledger: Ledger, engine: Engine) -> None:
    who = caller(key=Limits(output_tokens_per_minute=49))
    with pytest.raises(ApiError, match="key's limit output_tokens_per_minute") as refusal:
        await ledger.reserve(ask("req-1", who))
    assert (refusal.value.status, refusal.value.param) == (400, "max_tokens")
    assert refusal.value.headers == {}
    assert ledger.open_requests == 0
    assert rows(engine, reservations) == []


async def test_a_spent_budget_is_insufficient_quota_until_the_next_period(
    ledger: Ledger, engine: Engine
) -> None:
    who = caller(daily("0.001"))
    await ledger.reserve(ask("req-1", who))
    await ledger.settle("req-1", used(100, 50))
    with pytest.raises(ApiError) as refusal:
        await ledger.reserve(ask("req-2", who))
    assert (refusal.value.status, refusal.value.code) == (429, "insufficient_quota")
    assert refusal.value.headers == {"Retry-After": str(12 * 3600)}


async def test_never_outweighs_later_and_nothing_is_kept_of_a_refused_request(
    ledger: Ledger, engine: Engine
) -> None:
    who = caller(Limits(concurrent=1), key=Limits(input_tokens_per_minute=100))
    await ledger.reserve(ask("req-1", who))
    before = account(engine, "tenant:acme")
    with pytest.raises(ApiError) as refusal:
        await ledger.reserve(ask("req-2", who, inputs=101))
    assert refusal.value.status == 400
    assert account(engine, "tenant:acme") == before


# ── budgets ──


async def test_a_budget_that_is_set_in_the_middle_of_the_day_counts_all_of_it(
    ledger: Ledger, engine: Engine
) -> None:
    for number in range(3):  # 0.0006 USD each
        await ledger.reserve(ask(f"req-{number}"))
    await ledger.settle("req-0", used(100, 50))
    await ledger.settle("req-1", used(100, 50))
    # In one transaction with the end of one that ran before there was a budget.
    late, refused = await asyncio.gather(
        ledger.reserve(ask("req-3", caller(daily("0.0030")))),
        ledger.settle("req-2", used(100, 50)),
        return_exceptions=True,
    )
    assert late is None
    now = account(engine, "tenant:acme")
    assert (now.spent_usd, now.held_usd) == (Decimal("0.0018"), Decimal("0.0006"))
    with pytest.raises(ApiError, match=r"0\.0018 of the 0\.0029 USD"):
        await ledger.reserve(ask("req-4", caller(daily("0.0029"))))
    assert not isinstance(refused, Exception)


async def test_a_new_day_begins_with_nothing_and_yesterdays_request_is_yesterdays(
    ledger: Ledger, engine: Engine, clock: Clock
) -> None:
    who = caller(daily("0.001"))
    clock.now_ns = NOON_NS + 12 * 3600 * NS - NS
    await ledger.reserve(ask("req-1", who))
    clock.advance(2)
    await ledger.reserve(ask("req-2", who))
    await ledger.settle("req-1", used(100, 50))
    now = account(engine, "tenant:acme")
    assert (now.spent_usd, now.held_usd) == (0, Decimal("0.0006"))


async def test_a_thousand_parallel_requests_never_pass_a_budgets_last_dollar(
    engine: Engine, clock: Clock
) -> None:
    """Over two workers; each request costs 0.6 USD, so 166 have room and one more has not."""
    dear = Price(Decimal(1000), Decimal(1000), Decimal(10_000))
    who = caller(daily("100"))

    async def one(ledger: Ledger, number: int) -> bool:
        request_id = f"req-{number}"
        try:
            await ledger.reserve(Ask(request_id, who, "m", "chat", 100, 50, dear))
        except ApiError:
            return False
        await ledger.settle(request_id, used(100, 50))
        return True

    async with opened(engine, clock) as first, opened(engine, clock, "w2") as second:
        done = await asyncio.gather(
            *(one((first, second)[number % 2], number) for number in range(1_000))
        )
    with reading(engine) as connection:
        spent_usd = connection.scalar(select(func.sum(entries.c.usd)))
    assert spent_usd == Decimal("99.6")
    assert len(rows(engine, entries)) == sum(done) == 166
    assert account(engine, "tenant:acme").spent_usd == spent_usd
    assert rows(engine, reservations) == []


# ── what rides along, ends badly, or is lost ──


async def test_attempts_and_streamed_tokens_are_noted_within_a_second(
    ledger: Ledger, engine: Engine
) -> None:
    await ledger.reserve(ask("req-1"))
    ledger.dispatched("req-1", "r1", "req-1")
    ledger.dispatched("req-1", "r2", "req-1~2")
    for tokens in range(1, 8):
        ledger.streamed("req-1", tokens)
    assert rows(engine, reservations)[0].attempts == "[]"
    ledger.tick()
    await committed(ledger)
    (held,) = rows(engine, reservations)
    assert held.attempts == '[["req-1","r1"],["req-1~2","r2"]]'
    assert (held.replica, held.streamed_tokens) == ("r2", 7)


async def test_a_client_that_leaves_while_it_waits_for_its_reservation_leaves_none(
    ledger: Ledger, engine: Engine
) -> None:
    waiting = asyncio.ensure_future(ledger.reserve(ask("req-1")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await committed(ledger)
    assert rows(engine, reservations) == []
    assert account(engine, "tenant:acme") == Account()
    assert ledger.open_requests == 0


async def test_an_end_of_unknown_use_is_an_orphan_with_its_last_count(
    ledger: Ledger, clock: Clock
) -> None:
    await ledger.reserve(ask("req-1"))
    ledger.streamed("req-1", 7)
    clock.advance(3)
    await ledger.end_unknown("req-1", 499)
    (orphan,) = await ledger.orphans()
    assert (orphan.streamed_tokens, orphan.status) == (7, 499)
    assert orphan.ended_ns == clock.now_ns
    entry = await ledger.recover(orphan, used())
    assert entry is not None
    assert entry.nano_usd == 300_000
    assert await ledger.recover(orphan, used()) is None
    assert await ledger.orphans() == []


async def test_whoever_lets_its_lease_run_out_loses_its_requests_to_one_other(
    engine: Engine, clock: Clock
) -> None:
    async with (
        opened(engine, clock) as stalled,
        opened(engine, clock, "w2") as second,
        opened(engine, clock, "w3") as third,
    ):
        await stalled.reserve(ask("req-1"))
        clock.advance(9)
        second.tick()
        third.tick()
        assert await second.orphans() == []
        clock.advance(2)
        claims = await asyncio.gather(second.orphans(), third.orphans())
        ((orphan,),) = [claim for claim in claims if claim]
        assert orphan.held.output_tokens == 50
        # The stalled worker wakes up before anybody has settled it: its own count is the best.
        assert await stalled.settle("req-1", used()) is not None
        assert await second.recover(orphan, used(1, 1)) is None
    (entry,) = rows(engine, entries)
    assert entry.output_tokens == 20


async def test_a_settlement_after_recovery_changes_nothing(engine: Engine, clock: Clock) -> None:
    async with opened(engine, clock) as stalled, opened(engine, clock, "w2") as other:
        await stalled.reserve(ask("req-1"))
        clock.advance(11)
        other.tick()
        (orphan,) = await other.orphans()
        await other.recover(orphan, used(100, 30))
        assert await stalled.settle("req-1", used()) is None
        # It goes on, and has a lease again.
        stalled.tick()
        await stalled.reserve(ask("req-2"))
        assert await other.orphans() == []
        await stalled.settle("req-2", used())
    assert [entry.output_tokens for entry in rows(engine, entries)] == [30, 20]
    assert account(engine, "tenant:acme").open == 0


async def test_closing_writes_what_was_riding_and_leaves_what_runs_to_others(
    engine: Engine, clock: Clock
) -> None:
    async with opened(engine, clock, "w2") as other:
        async with opened(engine, clock) as ledger:
            await ledger.reserve(ask("req-1"))
            ledger.streamed("req-1", 3)
            ledger.record_decision("req-1", "acme", b"{}")
        assert [worker.id for worker in rows(engine, workers)] == ["w2"]
        assert len(rows(engine, decisions)) == 1
        (orphan,) = await other.orphans()
        assert orphan.streamed_tokens == 3


async def test_decisions_are_kept_for_a_day_and_not_too_many(
    ledger: Ledger, engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_KEEP_DECISIONS", 3)

    async def kept() -> list[str]:
        ledger.tick()
        await committed(ledger)
        return sorted(row.request_id for row in rows(engine, decisions))

    ledger.record_decision("req-old", "acme", b"{}")
    ledger.record_decision("req-old", "acme", b'{"again": 1}')
    clock.advance(24 * 3600 - 100)
    ledger.record_decision("req-0", "acme", b"{}")
    assert await kept() == ["req-0", "req-old"]
    clock.advance(100)
    assert await kept() == ["req-0"]
    for number in range(1, 5):
        clock.advance(61)
        ledger.record_decision(f"req-{number}", "acme", b"{}")
    assert await kept() == ["req-2", "req-3", "req-4"]


# ── a database that fails ──


async def test_a_full_disk_refuses_requests_and_loses_no_charge(
    sqlite_engine: Engine, clock: Clock
) -> None:
    async with opened(sqlite_engine, clock) as ledger:
        await ledger.reserve(ask("req-1"))
        assert ledger._writer is not None
        assert ledger._writer._connection is not None
        ledger._writer._connection.connection.execute("PRAGMA max_page_count=1").close()
        big = "x" * 1_000_000
        with pytest.raises(ApiError) as refusal:
            await ledger.reserve(Ask("req-2", caller(), big, "chat", 1, 1, PRICE))
        assert (refusal.value.status, refusal.value.code) == (503, "ledger_unavailable")
        assert refusal.value.headers == {"Retry-After": "2"}
        assert [row.request_id for row in rows(sqlite_engine, reservations)] == ["req-1"]
        await ledger.settle("req-1", used())
        ledger.tick()
        await committed(ledger)
        assert len(rows(sqlite_engine, entries)) == 1
        await ledger.reserve(ask("req-3"))
        await ledger.release("req-3")
    assert rows(sqlite_engine, reservations) == []


async def test_what_could_not_be_settled_is_settled_when_the_database_is_back(
    sqlite_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_writer, "_BUSY_S", 0.02)
    engine = open_store(sqlite_url)
    async with opened(engine, clock) as ledger:
        await ledger.reserve(ask("req-1"))
        await ledger.reserve(ask("req-2"))
        with writing(engine):  # somebody else writes, for longer than anybody waits
            assert await ledger.settle("req-1", used()) is None
            await ledger.end_unknown("req-2", 499)
            with pytest.raises(ApiError) as refusal:
                await ledger.reserve(ask("req-3"))
            assert refusal.value.status == 503
        assert rows(engine, entries) == []
        ledger.tick()
        (orphan,) = await ledger.orphans()
        assert orphan.request_id == "req-2"
        assert [entry.request_id for entry in rows(engine, entries)] == ["req-1"]
        assert [row.request_id for row in rows(engine, reservations)] == ["req-2"]
        assert account(engine, "tenant:acme").open == 1
    engine.dispose()


async def test_an_operation_that_cannot_be_done_spoils_none_of_its_batch(
    ledger: Ledger, engine: Engine, clock: Clock
) -> None:
    async with opened(engine, clock, "w2") as other:
        await other.reserve(ask("req-0"))
        answers = await asyncio.gather(
            ledger.reserve(ask("req-1")),
            ledger.reserve(ask("req-0")),  # an id that is taken
            ledger.reserve(ask("req-2")),
            return_exceptions=True,
        )
        kinds = [type(answer).__name__ for answer in answers]
        assert kinds == ["NoneType", "IntegrityError", "NoneType"]
        assert account(engine, "tenant:acme").open == len(rows(engine, reservations)) == 3
        assert ledger.open_requests == 2


async def test_a_lost_connection_is_made_again(postgres_url: str, clock: Clock) -> None:
    engine = open_store(postgres_url)
    async with opened(engine, clock) as ledger:
        await ledger.reserve(ask("req-1"))
        with writing(engine) as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        await ledger.settle("req-1", used())
        ledger.tick()
        await committed(ledger)
        assert len(rows(engine, entries)) == 1
    engine.dispose()


# ── processes ──


def start(act: str, url: str, name: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", str(WORKER), act, url, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_three_workers_with_64_clients_each_fill_a_token_limit_and_never_pass_it(
    store_url: str,
) -> None:
    engine = open_store(store_url)
    racing = [start("race", store_url, f"w{number}") for number in range(3)]
    for worker in racing:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in racing:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    granted = [int(worker.communicate(timeout=60)[0]) for worker in racing]
    assert [worker.returncode for worker in racing] == [0, 0, 0]
    with reading(engine) as connection:
        sums = select(func.sum(entries.c.output_tokens), func.count(), func.max(entries.c.ended_ns))
        output_tokens, count, last_ns = connection.execute(sums).one()
        first_ns = connection.scalar(select(func.min(entries.c.began_ns)))
    assert last_ns - first_ns < 60 * NS, "the test needs to be one window"
    assert count == sum(granted)
    assert sum(map(bool, granted)) > 1, "several took part"
    # As full as it can be: what is left is less than one request.
    assert 100_000 - 50 < output_tokens <= 100_000
    assert account(engine, "tenant:acme").held_output_tokens == 0
    assert rows(engine, reservations) == rows(engine, workers) == []
    engine.dispose()


def test_a_killed_worker_loses_no_reservation(store_url: str) -> None:
    engine = open_store(store_url)
    worker = start("hold", store_url, "doomed")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "held\n"
    worker.kill()
    worker.communicate()
    held = {row.request_id: row.streamed_tokens for row in rows(engine, reservations)}
    assert held == {f"req-held-{number}": number for number in range(8)} | {"req-late": 0}
    with writing(engine) as connection:
        connection.execute(delete(workers))
    engine.dispose()
