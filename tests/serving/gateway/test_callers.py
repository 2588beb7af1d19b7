"""Callers are let in by their keys, and stop within a second of losing them."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, event

from ridgeline.serving.gateway.callers import Caller, Callers
from ridgeline.serving.gateway.tenants import KeySpec, NewKey, Tenants, new_secret
from ridgeline.serving.openai import ApiError
from ridgeline.serving.tenant_spec import LimitsSpec, TenantSpec
from ridgeline.store.database import open_store

ANYBODY = Caller("default", "")


class Clock:
    """Both clocks of `Callers`, standing still until they are moved."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000_000

    def __call__(self) -> int:
        return self.ns

    def pass_s(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


class Database:
    """A database with a tenant `chat`, and a count of what is asked of it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.clock = engine, Clock()
        self.tenants = Tenants(engine, now_ns=self.clock)
        self.transactions = 0
        event.listen(engine, "begin", self._count)

    def _count(self, _: object) -> None:
        self.transactions += 1

    def chat(self, **key: object) -> NewKey:
        limits = LimitsSpec(concurrent=4)
        spec = TenantSpec(name="chat", weight=2.0, limits=limits, priority_class="bulk")
        if not any(one.name == "chat" for one in self.tenants.list_tenants()):
            self.tenants.create(spec, actor="a")
        return self.tenants.create_key(KeySpec(tenant="chat", **key), actor="a")

    def callers(self, **options: object) -> Callers:
        return Callers(self.engine, now_ns=self.clock, monotonic_ns=self.clock, **options)


@pytest.fixture
def database(store: Engine) -> Iterator[Database]:
    return Database(store)


def bearer(new: NewKey) -> str:
    return f"Bearer {new.secret}"


async def refused(callers: Callers, header: str) -> ApiError:
    with pytest.raises(ApiError) as told:
        await callers.authenticate(header)
    return told.value


async def test_a_key_is_its_tenant_with_all_limits(database: Database):
    new = database.chat(role="viewer", models=("m",), limits=LimitsSpec(requests_per_minute=9))
    caller = await database.callers().authenticate(bearer(new))
    assert (caller.tenant, caller.key_id, caller.role) == ("chat", new.key.id, "viewer")
    assert (caller.priority_class, caller.weight) == ("bulk", 2.0)
    assert caller.models == {"m"}
    assert (caller.tenant_limits.concurrent, caller.key_limits.requests_per_minute) == (4, 9)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("", "needs an API key"),
        ("Bearer", "needs an API key"),
        ("Bearer  ", "needs an API key"),
        ("Basic abc", "needs an API key"),
        ("Bearer nonsense", "Incorrect"),
        (f"Bearer {new_secret()}", "Incorrect"),
        ("Bearer \udc80", "Incorrect"),
        ("Bearer rl-" + "ä" * 43, "Incorrect"),
        ("Bearer " + "x" * 100_000, "Incorrect"),
    ],
)
async def test_nobody_comes_in_without_a_key(database: Database, header: str, says: str):
    database.chat()
    error = await refused(database.callers(), header)
    assert (error.status, error.code, error.type) == (
        401,
        "invalid_api_key",
        "authentication_error",
    )
    assert says in error.message
    assert error.headers == {"WWW-Authenticate": "Bearer"}


async def test_the_scheme_may_be_written_in_any_case(database: Database):
    new = database.chat()
    caller = await database.callers().authenticate(f"bearer   {new.secret} ")
    assert caller.tenant == "chat"


async def test_a_revoked_key_stops_within_a_second(database: Database):
    new, callers = database.chat(), database.callers()
    await callers.authenticate(bearer(new))
    database.tenants.revoke(new.key.id, actor="a")
    database.clock.pass_s(0.999)
    await callers.authenticate(bearer(new))
    database.clock.pass_s(0.001)
    error = await refused(callers, bearer(new))
    assert (error.status, error.message) == (401, "This API key was revoked.")


async def test_what_is_changed_here_holds_at_once(database: Database):
    new, callers = database.chat(), database.callers()
    await callers.authenticate(bearer(new))
    database.tenants.revoke(new.key.id, actor="a")
    callers.forget()
    assert (await refused(callers, bearer(new))).status == 401


async def test_a_key_ends_at_its_expiry_even_while_its_answer_is_kept(database: Database):
    expires_ns = database.clock() + 500_000_000
    new, callers = database.chat(expires_ns=expires_ns), database.callers()
    await callers.authenticate(bearer(new))
    database.clock.pass_s(0.5)
    assert "expired" in (await refused(callers, bearer(new))).message


async def test_a_disabled_tenants_keys_are_refused_with_403(database: Database):
    new, callers = database.chat(), database.callers()
    database.tenants.disable("chat", actor="a")
    error = await refused(callers, bearer(new))
    assert (error.status, error.code) == (403, "tenant_disabled")


async def test_new_limits_hold_within_a_second(database: Database):
    from ridgeline.serving.gateway.tenants import TenantChange

    new, callers = database.chat(), database.callers()
    await callers.authenticate(bearer(new))
    change = TenantChange(limits=LimitsSpec(concurrent=1))
    database.tenants.change("chat", change, actor="a")
    database.clock.pass_s(1)
    assert (await callers.authenticate(bearer(new))).tenant_limits.concurrent == 1


async def test_a_thousand_requests_of_a_second_are_one_query(database: Database):
    new, callers = database.chat(), database.callers()
    database.transactions = 0
    answers = await asyncio.gather(*(callers.authenticate(bearer(new)) for _ in range(1000)))
    assert {answer.key_id for answer in answers} == {new.key.id}
    assert database.transactions == 1


async def test_garbage_asks_the_database_hardly_ever(database: Database):
    """What has the form of a key waits for one query of 500; what has not is never looked up."""
    database.chat()
    callers = database.callers()
    database.transactions = 0
    wellformed = [f"Bearer {new_secret()}" for _ in range(2000)]
    malformed = [f"Bearer sk-{n}" for n in range(2000)]
    answers = await asyncio.gather(
        *(callers.authenticate(header) for header in (*wellformed, *malformed)),
        return_exceptions=True,
    )
    assert {answer.status for answer in answers} == {401}
    assert database.transactions <= 5


async def test_memory_stays_bounded(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ridgeline.serving.gateway.callers._MOST_KEPT", 100)
    database.chat()
    callers = database.callers()
    for _ in range(3):
        some = [callers.authenticate(f"Bearer {new_secret()}") for _ in range(300)]
        await asyncio.gather(*some, return_exceptions=True)
        assert len(callers._kept) <= 100
    assert callers._waiting == {}


async def test_more_than_may_wait_are_told_to_come_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ridgeline.serving.gateway.callers._MOST_WAITING", 10)
    callers = database.callers()
    some = [callers.authenticate(f"Bearer {new_secret()}") for _ in range(30)]
    answers = await asyncio.gather(*some, return_exceptions=True)
    assert sorted({answer.status for answer in answers}) == [401, 503]


async def test_one_that_leaves_takes_no_answer_from_the_others(database: Database):
    new, callers = database.chat(), database.callers()
    go = threading.Event()
    event.listen(database.engine, "begin", lambda _: go.wait(10))
    first = asyncio.create_task(callers.authenticate(bearer(new)))
    second = asyncio.create_task(callers.authenticate(bearer(new)))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert (await second).tenant == "chat"


async def test_without_the_database_unknown_keys_are_told_to_come_again(
    database: Database, caplog: pytest.LogCaptureFixture
):
    known, other, callers = database.chat(), database.chat(), database.callers()
    await callers.authenticate(bearer(known))
    with _down(database):
        await callers.authenticate(bearer(known))  # kept
        for _ in range(3):
            error = await refused(callers, bearer(other))
            assert (error.status, error.headers["Retry-After"]) == (503, "1")
        database.clock.pass_s(1)
        assert (await refused(callers, bearer(known))).status == 503
    await callers.authenticate(bearer(known))
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    assert known.secret not in caplog.text


async def test_a_database_that_hangs_is_given_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ridgeline.serving.gateway.callers._PATIENCE_S", 0.01)
    new, callers = database.chat(), database.callers()
    go = threading.Event()
    event.listen(database.engine, "begin", lambda _: go.wait(10))
    assert (await refused(callers, bearer(new))).status == 503
    go.set()
    monkeypatch.setattr("ridgeline.serving.gateway.callers._PATIENCE_S", 5.0)
    assert (await callers.authenticate(bearer(new))).tenant == "chat"


async def test_the_first_tenant_or_key_closes_an_open_gateway(database: Database):
    callers = database.callers(open_caller=ANYBODY)
    database.tenants.create(TenantSpec(name="default", weight=3.0), actor="a")
    assert (await callers.authenticate("")).weight == 3.0
    database.tenants.create(TenantSpec(name="chat"), actor="a")
    database.clock.pass_s(1)
    assert (await refused(callers, "")).status == 401


async def test_a_key_of_the_default_tenant_closes_an_open_gateway_too(database: Database):
    callers = database.callers(open_caller=ANYBODY)
    database.tenants.create(TenantSpec(name="default"), actor="a")
    new = database.tenants.create_key(KeySpec(tenant="default"), actor="a")
    assert (await refused(callers, "")).status == 401
    assert (await callers.authenticate(bearer(new))).tenant == "default"


@pytest.mark.parametrize("header", ["", "Bearer none", f"Bearer {new_secret()}", "Basic x"])
async def test_an_open_gateway_takes_any_key(database: Database, header: str):
    """Clients of OpenAI always send one."""
    assert await database.callers(open_caller=ANYBODY).authenticate(header) == ANYBODY


async def test_an_open_gateway_still_knows_its_admin(database: Database):
    callers = database.callers(open_caller=ANYBODY, admin_key="admin-secret")
    assert (await callers.authenticate("Bearer admin-secret")).role == "admin"
    assert (await callers.authenticate("Bearer other")).role == "user"


async def test_the_platforms_keys_are_the_default_tenant(database: Database):
    callers = database.callers(api_key="platform-secret", admin_key="admin-secret")
    user = await callers.authenticate("Bearer platform-secret")
    admin = await callers.authenticate("Bearer admin-secret")
    assert [(one.tenant, one.role) for one in (user, admin)] == [
        ("default", "user"), ("default", "admin"),
    ]  # fmt: skip
    limits = LimitsSpec(concurrent=3)
    database.tenants.create(TenantSpec(name="default", limits=limits), actor="a")
    database.clock.pass_s(1)
    assert (await callers.authenticate("Bearer platform-secret")).tenant_limits.concurrent == 3


def _down(database: Database) -> "_Down":
    return _Down(database.engine)


class _Down:
    """While it lasts, whoever begins a transaction is told what a dead server's driver says."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        event.listen(self._engine, "begin", self._fail)

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "begin", self._fail)

    def _fail(self, _: object) -> None:
        from sqlalchemy.exc import OperationalError

        raise OperationalError("BEGIN", None, Exception("server closed the connection"))


async def test_callers_of_a_file_that_went_away_are_told_so(tmp_path):
    engine = open_store(f"sqlite:///{tmp_path}/ledger.db")
    engine.dispose()
    (tmp_path / "ledger.db").write_text("gone" * 1000)
    for extra in ("ledger.db-wal", "ledger.db-shm"):
        (tmp_path / extra).unlink(missing_ok=True)
    assert (await refused(Callers(engine), f"Bearer {new_secret()}")).status == 503
    engine.dispose()
