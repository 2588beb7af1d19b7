"""As many replicas as are wanted, each let go only when nothing runs there."""

import asyncio
import sys

import pytest

from ridgeline.errors import ModelError
from ridgeline.launch.local import Child
from ridgeline.serving.control import deployment
from ridgeline.serving.control.deployment import Deployment
from ridgeline.serving.policy.restart import Restart

SERVES = """
import sys
from ridgeline.launch.local import announce, leave_with_parent
import os, threading
leave_with_parent(lambda: os._exit(0))
announce({"event": "listening", "url": "http://127.0.0.1:1"})
announce({"event": "ready", "stages_s": {}})
threading.Event().wait()
"""
LOADS = SERVES.replace('announce({"event": "ready", "stages_s": {}})\n', "")
FAILS = """
from ridgeline.launch.local import announce
announce({"event": "failed", "problem": "torn", "where": "model", "remedy": "again"})
"""


class Script:
    """Stands in for a Launch: a program of the test's own."""

    def __init__(self, code: str, number: int, log) -> None:
        self.name, self.log, self.env = f"m-{number}", log, {}
        self.argv = [sys.executable, "-c", code]

    async def start(self) -> Child:
        return await Child.start(self.argv, env=self.env, log=self.log)

    def close(self) -> None:
        pass


class World:
    """A deployment with its listener and its gateway; what happens is on `events`."""

    def __init__(self, tmp_path, code: str = SERVES) -> None:
        self.events: list[str] = []
        self.changed = asyncio.Condition()
        self.ready: set[str] = set()
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.failures: list[Exception] = []
        self.deployment = Deployment(
            lambda number: Script(code, number, tmp_path / "log"),
            self,
            self,
            is_ready=self.ready.__contains__,
            failed=self.failures.append,
            drain_s=20,
            start_most_s=60,
        )

    async def _hear(self, event: str) -> None:
        async with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    async def listens(self, replica, url) -> None:
        await self._hear(f"{replica} listens")

    async def said(self, replica, event) -> None:
        if event["event"] == "ready":
            assert event["start_s"] > 0
            self.ready.add(replica)
        await self._hear(f"{replica} {event['event']}")

    async def died(self, replica, reason) -> None:
        await self._hear(f"{replica} died")

    async def remove_replica(self, name, grace_s=0.0) -> None:
        await self._hear(f"{name} leaves")
        await self.may_go.wait()
        self.ready.discard(name)

    async def until(self, claim) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(claim)

    async def until_gone(self, size: int) -> None:
        async with asyncio.timeout(20):
            while len(self.deployment._replicas) > size:  # noqa: ASYNC110 - a count, not an event
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path):
    made = World(tmp_path)
    yield made
    await made.deployment.stop(5)
    await made.deployment.close()


async def test_it_grows_and_shrinks_and_the_last_that_came_goes_first(world) -> None:
    world.deployment.resize(3)
    assert world.deployment.size == 3
    await world.until(lambda: len(world.ready) == 3)
    world.may_go.clear()
    world.deployment.resize(2)
    world.deployment.resize(2)  # a second time does nothing
    assert (world.deployment.size, world.deployment.leaving) == (2, 1)
    await world.until(lambda: "m-2 leaves" in world.events)
    assert len(world.deployment._replicas) == 3  # what runs there is not cut
    world.may_go.set()
    await world.until_gone(2)
    assert world.ready == {"m-0", "m-1"}
    world.deployment.resize(0)
    await world.until_gone(0)
    assert (world.deployment.size, world.deployment.leaving) == (0, 0)


async def test_who_is_wanted_again_while_one_leaves_is_a_new_one(world) -> None:
    world.deployment.resize(1)
    await world.until(lambda: len(world.ready) == 1)
    world.may_go.clear()
    world.deployment.resize(0)
    world.deployment.resize(1)
    await world.until(lambda: "m-1" in world.ready)
    world.may_go.set()
    await world.until_gone(1)
    assert world.ready == {"m-1"}


async def test_who_has_not_been_ready_goes_before_those_that_are(world) -> None:
    world.deployment.resize(2)
    await world.until(lambda: len(world.ready) == 2)
    world.ready.discard("m-0")
    world.deployment.resize(1)
    await world.until(lambda: "m-0 leaves" in world.events)
    assert "m-1 leaves" not in world.events


async def test_who_is_killed_while_it_loads_is_out_of_routing_and_its_place_is_free(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(deployment, "restart", lambda *_: Restart(0.01, 1, "now"))
    world = World(tmp_path, LOADS)
    world.deployment.resize(1)
    await world.until(lambda: "m-0 listens" in world.events)
    await world.deployment._replicas[0]._child.kill()
    await world.until(lambda: "m-0 died" in world.events)
    await world.until_gone(0)
    world.deployment.resize(1)
    await world.until(lambda: world.events.count("m-0 listens") == 2)
    await world.deployment.stop(5)
    await world.deployment.close()


async def test_one_that_said_where_it_listens_after_it_had_left_leaves_again(world) -> None:
    world.deployment.resize(1)
    world.deployment.resize(0)  # before its process has said anything
    await world.until(lambda: world.events.count("m-0 leaves") == 2)
    assert world.events[-1] == "m-0 leaves"
    await world.until_gone(0)


async def test_a_start_that_fails_keeps_its_place_until_it_may_be_tried_again(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(deployment, "restart", lambda *_: Restart(0.3, 1, "later"))
    world = World(tmp_path, FAILS)
    world.deployment.resize(1)
    async with asyncio.timeout(20):
        while not world.failures:  # noqa: ASYNC110 - a list, not an event
            await asyncio.sleep(0.01)
    assert isinstance(world.failures[0], ModelError)
    assert world.deployment.size == 1
    # Whoever has it in routing must let it go: the next one has its name.
    await world.until(lambda: "m-0 died" in world.events)
    await world.until_gone(0)
    assert world.deployment.size == 0
    await world.deployment.close()
