"""A rollout on replicas that run: nobody notices it, and going back takes less than a second."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from ridgeline.platform.live import LivePlatform
from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.versions import Version, version_of
from ridgeline.serving.gateway.place import database_url
from ridgeline.serving.policy.gate import Criteria
from ridgeline.serving.policy.rollout import Phase, Plan
from ridgeline.spec import parse
from ridgeline.store.database import open_store

SPEC = """
name: rolls
models:
  - {name: chat, engine: {kind: fake, step: 5ms, prefill_tokens_per_s: 100000}}
gateway: {listen: "127.0.0.1:0"}
"""
CLIENTS = 8


class Watcher:
    """Waits for the first replica to be ready; draws nothing."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()

    def started(self, url, models) -> None: ...

    def stage(self, replica, event) -> None: ...

    def died(self, replica, reason) -> None: ...

    def joined(self, replica, url, is_ready) -> None: ...

    def ready(self, url) -> None:
        self.is_ready.set()

    def draining(self) -> None: ...


@dataclass
class Answer:
    sent_s: float
    status: int
    replica: str
    whole: bool


@dataclass
class Traffic:
    """Streams without end; each client has a session of its own every few requests."""

    url: str
    answers: list[Answer] = field(default_factory=list)

    async def client(self, number: int) -> None:
        async with aiohttp.ClientSession() as session:
            for count in range(100_000):
                await self._ask(session, f"{number}/{count // 2}")

    async def _ask(self, session: aiohttp.ClientSession, name: str) -> None:
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
        sent_s = time.monotonic()
        path = f"{self.url}/v1/chat/completions"
        headers = {"x-session-id": name}
        async with session.post(path, json={**body, "stream": True}, headers=headers) as answer:
            text = await answer.text()
            replica = answer.headers.get("X-Ridgeline-Replica", "")
            whole = text.rstrip().endswith("data: [DONE]") and '"error"' not in text
            self.answers.append(Answer(sent_s, answer.status, replica, whole))


@dataclass
class World:
    log: RolloutLog
    traffic: Traffic
    old: Version

    async def until(self, claim, within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not claim():  # noqa: ASYNC110 - any claim; most have no event
                await asyncio.sleep(0.01)

    def phase(self) -> Phase:
        return self.log.latest("chat")[0].rollout.phase

    def of_new(self) -> list[Answer]:
        return [one for one in self.traffic.answers if "@" in one.replica]


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    platform = parse(SPEC, name="spec")
    watcher, stop = Watcher(), asyncio.Event()
    live = LivePlatform(platform, watcher)
    run = asyncio.create_task(live.run(stop))
    store = open_store(database_url(platform.name, None))
    clients: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(30):
            await watcher.is_ready.wait()
        traffic = Traffic(live.gateway.url)
        clients = [asyncio.create_task(traffic.client(number)) for number in range(CLIENTS)]
        yield World(RolloutLog(store), traffic, version_of(platform.models[0]))
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        stop.set()
        await run
        store.dispose()


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    monkeypatch.setenv("RIDGELINE_STATE", str(tmp_path))


def other(old: Version, **settings) -> Version:
    return Version(old.model, {**old.engine, **settings})


@pytest.mark.proves("S195")
async def test_going_back_is_one_change_of_route_under_a_second_and_cuts_nobody() -> None:
    async with running() as world:
        new = other(world.old, max_seqs=32)
        plan = Plan(steps=(0.5,), keep_s=600.0)
        world.log.start("chat", world.old, new, plan, Criteria(least=10**9))
        await world.until(lambda: len(world.of_new()) > 20)
        assert world.phase() is Phase.CANARY
        began_s = time.monotonic()
        world.log.wish("chat", "abort")
        await world.until(lambda: world.traffic.answers[-1].sent_s > began_s + 1.5)
        late_s = [one.sent_s - began_s for one in world.of_new()]
        assert max(late_s) < 1.0
        assert world.phase() is Phase.BACK
        assert all((one.status, one.whole) == (200, True) for one in world.traffic.answers)
        assert world.log.live("chat", world.old) == world.old


async def test_after_a_promotion_the_old_version_is_warm_to_go_back_to() -> None:
    async with running() as world:
        new = other(world.old, max_seqs=32)
        plan = Plan(steps=(0.5,), keep_s=600.0)
        world.log.start("chat", world.old, new, plan, Criteria(least=10**9))
        await world.until(lambda: len(world.of_new()) > 5)
        world.log.wish("chat", "promote")
        await world.until(lambda: world.phase() is Phase.KEEPING)
        switched_s = time.monotonic()
        await world.until(lambda: world.traffic.answers[-1].sent_s > switched_s + 1.0)
        after = [one for one in world.traffic.answers if one.sent_s > switched_s + 0.5]
        assert after
        assert all("@" in one.replica for one in after)
        assert world.log.live("chat", world.old) == new
        began_s = time.monotonic()
        world.log.wish("chat", "abort")
        await world.until(lambda: world.traffic.answers[-1].sent_s > began_s + 1.5)
        assert max(one.sent_s - began_s for one in world.of_new()) < 1.0
        assert all((one.status, one.whole) == (200, True) for one in world.traffic.answers)


async def test_a_slower_version_goes_back_by_itself() -> None:
    async with running() as world:
        slow = other(world.old, prefill_tokens_per_s=200.0)
        world.log.start("chat", world.old, slow, Plan(steps=(0.5,)), Criteria())
        await world.until(lambda: world.phase() is Phase.BACK)
        (kept,) = world.log.latest("chat")
        assert "TTFT" in kept.rollout.reason
        assert all((one.status, one.whole) == (200, True) for one in world.traffic.answers)
