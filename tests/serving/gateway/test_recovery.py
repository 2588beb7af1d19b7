import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from sqlalchemy import Engine, select

from ridgeline.errors import StoreError
from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.gateway.ledger_rows import Ask
from ridgeline.serving.gateway.recovery import Recovery, Source, getter
from ridgeline.serving.policy.price import Price
from ridgeline.serving.usage_log import Usage
from ridgeline.store.database import open_store, reading
from ridgeline.store.tables import entries, reservations

NS = 1_000_000_000
WORKER = Path(__file__).parent / "ledger_worker.py"
PRICE = Price(Decimal(1), Decimal("0.1"), Decimal(10))


@dataclass
class Logs:
    """What replicas know, by address and attempt; who is in `silent` does not answer."""

    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def note(
        self, replica: str, attempt: str, prompt: int, completion: int, *, finished: bool = True
    ) -> None:
        self.known[f"http://{replica}/usage/{attempt}"] = {
            "request_id": attempt,
            "prompt_tokens": prompt,
            "cached_tokens": 0,
            "completion_tokens": completion,
            "finished": finished,
        }

    async def get(self, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        self.asked.append(url.removeprefix("http://"))
        self.headers.append(headers)
        replica = url.split("/")[2]
        if replica in self.silent:
            raise ConnectionRefusedError(replica)
        if url not in self.known:
            return 404, b"{}"
        return 200, json.dumps(self.known[url]).encode()


@dataclass
class Setting:
    engine: Engine
    ledger: Ledger
    recovery: Recovery
    logs: Logs
    advance: Callable[[float], None]

    async def begin(self, request_id: str = "req-1", *attempts: str, streamed: int = 0) -> None:
        """A request that was sent to these replicas, one after another, and ended badly."""
        caller = Caller("acme", "k1")
        await self.ledger.reserve(Ask(request_id, caller, "m", "chat", 100, 50, PRICE))
        for number, replica in enumerate(attempts, 1):
            attempt = request_id if number == 1 else f"{request_id}~{number}"
            self.ledger.dispatched(request_id, replica, attempt)
        if streamed:
            self.ledger.streamed(request_id, streamed)
        await self.ledger.end_unknown(request_id, 499)

    def entries(self) -> list[Any]:
        with reading(self.engine) as connection:
            return list(connection.execute(select(entries)).all())

    def entry(self) -> tuple[Any, ...]:
        (row,) = self.entries()
        return row.replica, row.input_tokens, row.output_tokens, row.basis

    def open(self) -> int:
        with reading(self.engine) as connection:
            return len(connection.execute(select(reservations)).all())


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    engine = open_store(sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
async def setting(engine: Engine) -> AsyncIterator[Setting]:
    """Two replicas, "a" and "b", and a clock that moves when told to."""
    now_ns = [1_800_000_000 * NS]

    def advance(seconds: float) -> None:
        now_ns[0] += int(seconds * NS)

    ledger = Ledger(engine, "w1", clock=lambda: now_ns[0], lease_s=1e9, tick_s=3600)
    await ledger.open()
    logs = Logs()
    sources = [Source(name, f"http://{name}", {"Authorization": name}) for name in ("a", "b")]
    recovery = Recovery(ledger, lambda model: sources if model == "m" else [], logs.get)
    yield Setting(engine, ledger, recovery, logs, advance)
    await ledger.close()


async def test_what_a_replicas_log_says_is_charged_once(setting: Setting) -> None:
    await setting.begin("req-1", "a", streamed=5)
    setting.logs.note("a", "req-1", 90, 7)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("a", 90, 7, "replica log")
    assert await setting.recovery.round() == 0
    assert len(setting.entries()) == 1
    assert setting.entries()[0].status == 499
    assert {"Authorization": "a"} in setting.logs.headers


async def test_a_request_that_still_runs_is_waited_for(setting: Setting) -> None:
    await setting.begin("req-1", "a")
    setting.logs.note("a", "req-1", 90, 7, finished=False)
    assert await setting.recovery.round() == 1
    setting.logs.note("a", "req-1", 90, 9)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("a", 90, 9, "replica log")


async def test_a_replica_that_died_is_asked_again_when_it_is_back(setting: Setting) -> None:
    await setting.begin("req-1", "a", streamed=5)
    setting.logs.silent = {"a"}
    assert await setting.recovery.round() == 1
    setting.advance(29)
    assert await setting.recovery.round() == 1
    setting.logs.silent = set()
    setting.logs.note("a", "req-1", 90, 6)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("a", 90, 6, "replica log")


async def test_of_a_replica_that_stays_away_what_was_streamed_is_charged(setting: Setting) -> None:
    await setting.begin("req-1", "a", streamed=5)
    setting.logs.silent = {"a"}
    assert await setting.recovery.round() == 1
    setting.advance(30)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("a", 100, 5, "streamed")


async def test_a_gateway_that_was_away_for_long_still_waits_for_its_replicas(
    setting: Setting,
) -> None:
    await setting.begin("req-1", "a", streamed=5)
    setting.advance(3600)
    setting.logs.silent = {"a"}  # it was just started again, and no replica has joined it yet
    assert await setting.recovery.round() == 1
    setting.advance(5)
    setting.logs.silent = set()
    setting.logs.note("a", "req-1", 90, 6)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("a", 90, 6, "replica log")


async def test_of_a_replica_that_is_gone_its_log_may_still_be_there(setting: Setting) -> None:
    await setting.begin("req-1", "gone", streamed=5)
    await setting.begin("req-2", "gone")
    kept = {("gone", "req-1"): Usage("req-1", 90, 0, 6, finished=True)}
    setting.recovery._past = lambda replica, attempt: kept.get((replica, attempt))
    assert await setting.recovery.round() == 1
    assert setting.entry() == ("gone", 90, 6, "replica log")


async def test_a_retry_is_not_charged_twice(setting: Setting) -> None:
    await setting.begin("req-1", "a", "b")
    setting.logs.note("a", "req-1", 90, 3)
    setting.logs.note("b", "req-1~2", 90, 8)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("b", 90, 8, "replica log")


async def test_an_attempt_that_was_not_noted_any_more_is_found(setting: Setting) -> None:
    await setting.begin("req-1")
    await setting.begin("req-2", "a")
    setting.logs.note("b", "req-1", 90, 4)
    setting.logs.note("a", "req-2", 90, 2)
    setting.logs.note("b", "req-2~2", 90, 6)
    assert await setting.recovery.round() == 0
    assert [row.output_tokens for row in setting.entries()] == [4, 6]


async def test_of_attempts_of_which_none_was_noted_the_last_is_found(setting: Setting) -> None:
    """The first was refused, so no log has it, and its worker died within a second."""
    await setting.begin("req-1")
    await setting.begin("req-2")
    setting.logs.note("a", "req-1~2", 90, 4)
    setting.logs.note("a", "req-2", 90, 2)
    setting.logs.note("b", "req-2~3", 90, 6)
    assert await setting.recovery.round() == 0
    assert [row.output_tokens for row in setting.entries()] == [4, 6]


async def test_what_no_replica_knows_is_released_after_a_while(setting: Setting) -> None:
    await setting.begin("req-1", "a")
    assert await setting.recovery.round() == 1
    setting.advance(3)
    assert await setting.recovery.round() == 0
    assert setting.entries() == []
    assert setting.open() == 0


async def test_a_replica_that_is_no_longer_there_ends_the_waiting_too(setting: Setting) -> None:
    await setting.begin("req-1", "gone", streamed=2)
    assert await setting.recovery.round() == 1
    setting.advance(30)
    assert await setting.recovery.round() == 0
    assert setting.entry() == ("gone", 100, 2, "streamed")


@pytest.mark.parametrize("answer", [(500, b"{}"), (200, b"no JSON"), (200, b'{"request_id": 1}')])
async def test_an_answer_that_makes_no_sense_is_silence(
    setting: Setting, answer: tuple[int, bytes]
) -> None:
    async def get(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        return answer

    recovery = Recovery(setting.ledger, lambda model: [Source("a", "http://a", {})], get)
    await setting.begin("req-1", "a")
    assert await recovery.round() == 1


async def test_two_workers_on_the_same_request_charge_it_once(setting: Setting) -> None:
    await setting.begin("req-1", "a")
    setting.logs.note("a", "req-1", 90, 7)
    assert await asyncio.gather(setting.recovery.round(), setting.recovery.round()) == [0, 0]
    assert len(setting.entries()) == 1


async def test_it_goes_on_when_the_database_fails_for_a_while(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, third = 0, asyncio.Event()
    orphans = setting.ledger.orphans

    async def failing() -> Any:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise StoreError("is full")
        if rounds == 3:
            third.set()
        return await orphans()

    monkeypatch.setattr(setting.ledger, "orphans", failing)
    recovery = Recovery(setting.ledger, lambda model: [], setting.logs.get, every_s=0)
    running = asyncio.create_task(recovery.run())
    await third.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_real_getter_tells_answers_from_silence() -> None:
    async def usage(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer x":
            return web.Response(status=401)
        return web.Response(body=b"{}")

    app = web.Application()
    app.router.add_get("/usage/{id}", usage)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/usage/req-1"
    async with aiohttp.ClientSession() as session:
        get = getter(session)
        assert await get(url, {"Authorization": "Bearer x"}) == (200, b"{}")
        await runner.cleanup()
        with pytest.raises(OSError):  # noqa: PT011
            await get(url, {})


def held_and_killed(url: str) -> None:
    """A worker that is killed with nine requests open."""
    command = [sys.executable, "-W", "error", str(WORKER), "hold", url, "doomed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        worker.kill()


async def test_a_killed_workers_requests_are_settled_by_another_from_the_log(
    store_url: str,
) -> None:
    engine = open_store(store_url)
    await asyncio.to_thread(held_and_killed, store_url)
    logs = Logs()
    for number in range(8):
        logs.note("a", f"req-held-{number}", 60, 10 + number)
    # Later than the lease of who was killed, by this worker's clock.
    later_s = 11.0
    ledger = Ledger(engine, "w2", clock=lambda: time.time_ns() + int(later_s * NS), tick_s=3600)
    await ledger.open()
    recovery = Recovery(ledger, lambda model: [Source("r", "http://a", {})], logs.get)
    assert await recovery.round() == 1  # one that no replica knows
    later_s += 4
    assert await recovery.round() == 0
    await ledger.close()
    with reading(engine) as connection:
        settled = select(entries.c.request_id, entries.c.output_tokens, entries.c.basis)
        rows = connection.execute(settled.order_by(entries.c.request_id)).all()
        assert connection.execute(select(reservations)).all() == []
    assert [tuple(row) for row in rows] == [
        (f"req-held-{number}", 10 + number, "replica log") for number in range(8)
    ]
    engine.dispose()
