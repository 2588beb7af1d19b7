"""Minutes of replicas, with a clock that the test turns."""

import asyncio
import time
from collections import defaultdict
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from ridgeline.serving.gateway.replica_time import (
    MINUTE_NS,
    Doing,
    Minutes,
    ReplicaTime,
    doing,
    write_minutes,
)
from ridgeline.serving.policy.states import State
from ridgeline.store.database import open_store
from ridgeline.store.tables import replica_minutes

S = 10**9


def rows(store: Engine) -> list[dict[str, object]]:
    with store.connect() as connection:
        found = connection.execute(select(replica_minutes).order_by(replica_minutes.c.minute))
        return [dict(row) for row in found.mappings()]


@pytest.mark.parametrize(
    ("state", "in_flight", "expected"),
    [
        (State.READY, 1, Doing.BUSY),
        (State.READY, 0, Doing.IDLE),
        (State.STARTING, 0, Doing.LOADING),
        (State.LOADING, 0, Doing.LOADING),
        (State.DOWN, 3, Doing.LOADING),
        (State.DRAINING, 1, Doing.BUSY),
        (State.DRAINING, 0, Doing.DRAINED),
        (State.EMPTY, 0, Doing.DRAINED),
        (State.STOPPED, 0, None),
    ],
)
def test_what_a_replicas_time_is_paid_for(
    state: State, in_flight: int, expected: Doing | None
) -> None:
    assert doing(state, in_flight) is expected


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([*Doing, None]),
        st.integers(0, 3 * MINUTE_NS),
        st.booleans(),
    ),
    max_size=30,
)


@given(STEPS, st.integers(0, 10**18))
def test_every_nanosecond_of_a_replica_is_in_one_minute_and_one_span(
    steps: list[tuple[str, Doing | None, int, bool]], now_ns: int
) -> None:
    minutes, spent = Minutes(), defaultdict(int)
    what: dict[str, tuple[Doing | None, int]] = {}
    taken: dict[tuple[str, int], list[int]] = {}
    for replica, now, later_ns, take in steps:
        now_ns += later_ns
        before, since_ns = what.get(replica, (None, now_ns))
        if before is not None:
            spent[replica, before] += now_ns - since_ns
        what[replica] = (now, now_ns)
        minutes.saw(replica, now, now_ns)
        if take:
            over = minutes.take(now_ns)
            assert not set(over) & set(taken), "a minute is given once"
            taken |= over
    for replica, (before, since_ns) in what.items():
        if before is not None:
            spent[replica, before] += now_ns - since_ns
    taken |= minutes.take(now_ns, also_this_minute=True)
    found = defaultdict(int)
    for (replica, _), spans in taken.items():
        assert sum(spans) <= MINUTE_NS
        for at, span in enumerate(spans):
            found[replica, Doing(at)] += span
    assert {key: n for key, n in found.items() if n} == {key: n for key, n in spent.items() if n}


def test_a_clock_that_was_set_is_no_time_of_a_replica() -> None:
    minutes = Minutes()
    minutes.saw("a", Doing.BUSY, 0)
    minutes.saw("a", Doing.IDLE, 3 * 24 * 60 * MINUTE_NS)
    minutes.saw("a", Doing.BUSY, 0)  # and set back
    assert minutes.take(10**18, also_this_minute=True) == {}


def test_minutes_are_written_with_model_and_price(store_url: str) -> None:
    store = open_store(store_url)
    watched = ReplicaTime(store)
    watched.joined("chat-0", "chat", Decimal("2.5"))
    watched.saw("chat-0", State.LOADING, 0, 0)
    watched.saw("chat-0", State.READY, 0, 20 * S)
    watched.saw("chat-0", State.READY, 1, 30 * S)
    watched.saw("chat-0", State.READY, 2, 40 * S)
    watched.saw("chat-0", State.READY, 0, 70 * S)
    watched._take(90 * S)
    watched.write()
    assert rows(store) == [
        {
            "replica": "chat-0",
            "minute": 0,
            "model": "chat",
            "usd_per_hour": Decimal("2.5"),
            "busy_ns": 30 * S,
            "idle_ns": 10 * S,
            "loading_ns": 20 * S,
            "draining_ns": 0,
        }
    ]
    store.dispose()


def test_of_several_workers_the_first_is_believed(store_url: str) -> None:
    store = open_store(store_url)
    first, second = ReplicaTime(store), ReplicaTime(store)
    for worker, in_flight in ((first, 1), (second, 0)):
        worker.saw("chat-0", State.READY, in_flight, 0)
        worker._take(MINUTE_NS)
        worker.write()
    (row,) = rows(store)
    assert (row["busy_ns"], row["idle_ns"]) == (MINUTE_NS, 0)
    write_minutes(store, [])
    store.dispose()


def test_minutes_wait_while_the_database_is_away(tmp_path, caplog) -> None:
    file = tmp_path / "ledger.db"
    store = open_store(f"sqlite:///{file}")
    with store.begin() as connection:
        replica_minutes.drop(connection)
    watched = ReplicaTime(store)
    watched.saw("chat-0", State.READY, 0, 0)
    watched._take(MINUTE_NS)
    watched.write()
    assert "wait to be written" in caplog.text
    with store.begin() as connection:
        replica_minutes.create(connection)
    watched._take(2 * MINUTE_NS)
    watched.write()
    assert [row["minute"] for row in rows(store)] == [0, 1]
    store.dispose()


async def test_what_there_is_of_the_last_minute_is_written_at_the_end(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    watched = ReplicaTime(store)
    watched.joined("chat-0", "chat", Decimal(1))
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(0)
    watched.saw("chat-0", State.READY, 0, time.time_ns())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sum(row["idle_ns"] for row in rows(store)) > 0
    store.dispose()
