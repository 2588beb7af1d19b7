import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

from ridgeline.errors import StoreError
from ridgeline.serving.gateway.ledger_batch import Aside
from ridgeline.serving.gateway.ledger_writer import Writer
from ridgeline.store.database import open_store


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    engine = open_store(sqlite_url)
    yield engine
    engine.dispose()


def submit(writer: Writer, *acts: Any) -> "list[asyncio.Future[Any]]":
    futures = [asyncio.get_running_loop().create_future() for _ in acts]
    writer.submit([(Aside(act), future) for act, future in zip(acts, futures, strict=True)])
    return futures


async def test_what_waits_shares_a_transaction_and_keeps_its_order(engine: Engine) -> None:
    begins: list[int] = []
    event.listen(engine, "begin", lambda connection: begins.append(len(done)))
    done: list[int] = []
    writer = Writer(engine, lambda: 5)

    def act(number: int) -> Any:
        def run(connection: Connection, now_ns: int) -> int:
            done.append(number)
            return number + now_ns

        return run

    answers = await asyncio.gather(*submit(writer, *(act(number) for number in range(200))))
    await writer.close()
    assert answers == [number + 5 for number in range(200)]
    assert done == list(range(200))
    assert begins == [0]


async def test_one_that_fails_is_told_and_the_others_are_done(engine: Engine) -> None:
    writer = Writer(engine, lambda: 0)

    def fails(connection: Connection, now_ns: int) -> None:
        raise ValueError("a mistake of ours")

    futures = submit(writer, lambda *_: 1, fails, lambda *_: 2)
    answers = await asyncio.gather(*futures, return_exceptions=True)
    await writer.close()
    assert [answers[0], answers[2]] == [1, 2]
    assert isinstance(answers[1], ValueError)


async def test_a_database_that_cannot_be_reached_is_told_to_all_and_tried_anew(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Connection:
        raise OperationalError("BEGIN", {}, sqlite3.OperationalError("disk I/O error"))

    connect = engine.connect
    monkeypatch.setattr(engine, "connect", refuse)
    writer = Writer(engine, lambda: 0)
    futures = submit(writer, lambda *_: 1, lambda *_: 2)
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreError, StoreError]
    monkeypatch.setattr(engine, "connect", connect)
    assert await asyncio.gather(*submit(writer, lambda *_: 3)) == [3]
    await writer.close()


async def test_closing_commits_what_was_submitted(engine: Engine) -> None:
    writer = Writer(engine, lambda: 0)
    futures = submit(writer, *(lambda *_: 7 for _ in range(2_000)))
    await writer.close()
    assert await asyncio.gather(*futures) == [7] * 2_000


async def test_who_no_longer_waits_is_not_told(engine: Engine) -> None:
    writer = Writer(engine, lambda: 0)
    gone, there = submit(writer, lambda *_: 1, lambda *_: 2)
    gone.cancel()
    assert await there == 2
    await writer.close()


async def test_a_commit_that_cannot_be_observed_is_not_done_again(engine: Engine) -> None:
    done: list[int] = []

    def observe(operations: int, took_s: float) -> None:
        raise ValueError("a mistake of ours")

    writer = Writer(engine, lambda: 0, observe)
    futures = submit(writer, lambda *_: done.append(1), lambda *_: done.append(2))
    await asyncio.gather(*futures)
    await writer.close()
    assert done == [1, 2]
