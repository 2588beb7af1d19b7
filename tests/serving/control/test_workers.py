"""Several gateway processes on one address: they share limits, and none is missed for long."""

import asyncio
import os
import signal

import msgspec
import openai
import pytest
from aiohttp import ClientSession

from ridgeline.serving.control.workers import Workers
from ridgeline.serving.fake.server import FakeReplica
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.tenants import KeySpec, Tenants
from ridgeline.serving.tenant_spec import LimitsSpec, TenantSpec
from ridgeline.store.database import open_store


@pytest.fixture
async def workers(tmp_path):
    """Two workers with a tenant of 20 requests a minute, before one fake replica."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    store = open_store(url)
    limits = LimitsSpec(requests_per_minute=20)
    Tenants(store).sync([TenantSpec(name="search", limits=limits)])
    key = Tenants(store).create_key(KeySpec(tenant="search", name="k"), actor="test").secret
    store.dispose()
    config = GatewayConfig(port=0, workers=2, database=url, admin_key="root", open=False)
    group = Workers(config, tmp_path / "logs")
    async with FakeReplica(Setup(name="m", time_scale=0)) as replica:
        group.add_replica(ReplicaAddress("r", replica.url, "m"))
        await group.start()
        try:
            assert await group.until_ready("r", 20)
            yield group, key
        finally:
            await group.close()


async def ask(url: str, key: str) -> int:
    """The status of one request on a connection of its own, so that any worker may get it."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        try:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}], max_tokens=2
            )
        except openai.APIStatusError as error:
            return error.status_code
        return 200


def requests_counted(texts: dict[str, str]) -> float:
    """All requests in some workers' texts."""
    lines = (line for text in texts.values() for line in text.splitlines())
    return sum(float(line.rpartition(" ")[2]) for line in lines if "requests_total{" in line)


async def test_they_share_limits_and_show_what_all_did(workers) -> None:
    group, key = workers
    assert len(set(group.pids)) == 2
    statuses = await asyncio.gather(*(ask(group.url, key) for _ in range(40)))
    assert sorted(statuses) == [200] * 20 + [429] * 20
    headers = {"Authorization": "Bearer root"}
    async with ClientSession(headers=headers) as session:
        for _ in range(4):  # whichever is asked, it tells of all
            async with session.get(f"{group.url}/console.json") as answer:
                shown = await answer.json()
            assert (shown["workers"], shown["requests"]) == (2, 40)
            async with session.get(f"{group.url}/metrics") as answer:
                text = await answer.text()
            assert requests_counted({"all": text}) == 40


async def test_a_killed_worker_comes_back_with_the_replicas(workers) -> None:
    group, key = workers
    assert await asyncio.gather(*(ask(group.url, key) for _ in range(8))) == [200] * 8
    scrape = group.handlers()["metrics"]
    before = requests_counted(await scrape({}))
    old = group.pids[0]
    os.kill(old, signal.SIGKILL)
    async with asyncio.timeout(20):
        # Any claim of two processes; there is no event for it.
        while group.pids[0] == old or not group._workers[0].listens.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await group.until_ready("r", 10)
    assert await asyncio.gather(*(ask(group.url, key) for _ in range(8))) == [200] * 8
    assert before == 8
    assert requests_counted(await scrape({})) == 16  # the dead one's are not forgotten


async def test_a_taken_address_is_an_error_and_nothing_is_left(workers, tmp_path) -> None:
    group, _ = workers
    port = int(group.url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        await Workers(GatewayConfig(port=port, workers=2), tmp_path).start()


async def test_a_worker_that_hangs_hides_no_other_and_stops_no_look(workers, monkeypatch) -> None:
    monkeypatch.setattr("ridgeline.serving.control.workers.ANSWER_S", 0.5)
    group, key = workers
    assert await asyncio.gather(*(ask(group.url, key) for _ in range(8))) == [200] * 8
    before = await group.handlers()["metrics"]({})
    os.kill(group.pids[0], signal.SIGSTOP)
    try:
        async with asyncio.timeout(5):
            look = await group.look()
            assert (look["workers"], look["silent_workers"]) == (1, 1)
            after = await group.handlers()["metrics"]({})
            hung, other = (one.config.worker for one in group._workers)
            assert after[hung] == before[hung]  # what it said last: no counter falls
            assert "ridgeline_gateway_requests_total" in after[other]
            assert await group.handlers()["statuses"]({})
    finally:
        os.kill(group.pids[0], signal.SIGCONT)


async def test_a_replica_that_comes_while_a_worker_starts_is_told_twice_and_kills_nobody(
    workers,
) -> None:
    group, _ = workers
    pids = group.pids
    address = group.addresses[0]
    for worker in group._workers:
        await worker.ask("add", address=msgspec.to_builtins(address))
    assert [len((await worker.ask("status"))["replicas"]) for worker in group._workers] == [1, 1]
    assert group.pids == pids
