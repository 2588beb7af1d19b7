"""The loops of a platform: only who holds the lease acts, and what they decide is shown."""

import asyncio

import pytest
from sqlalchemy import Engine

from ridgeline.platform.controllers import Controllers
from ridgeline.serving.control.autoscaler import Scaling
from ridgeline.serving.control.scale_log import Lease, ScaleLog
from ridgeline.serving.control.versions import Version
from ridgeline.serving.policy.scale import Settings, Step

SETTINGS = Settings(least=0, most=5, per_replica=2, up=Step(5, 60), down_after_s=0, zero_after_s=0)
VERSION = Version(None, {"kind": "fake"})


class Model:
    """A model without replicas."""

    spec_version = VERSION
    scaling = Scaling("m", SETTINGS, every_s=0.01)

    def __init__(self) -> None:
        self.size = 0
        self.started: list[Version] = []
        self.grown = asyncio.Event()

    async def start(self, live: Version) -> None:
        self.started.append(live)

    def resize(self, wanted: int) -> None:
        self.size = wanted
        self.grown.set()

    def shown(self):
        return {"model": "m", "versions": []}


class Front:
    """Four requests are held."""

    async def look(self):
        return {"replicas": [], "queues": [], "held": {"m": 4}}

    async def set_split(self, model, split) -> None: ...


@pytest.fixture
async def running():
    """Runs loops beside the test."""
    tasks: list[asyncio.Task[None]] = []
    yield lambda made: tasks.extend(asyncio.create_task(loop) for loop in made.loops())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_decided_is_done_shown_and_on_record(store: Engine, running) -> None:
    model = Model()
    controllers = Controllers(store, {"m": model}, Front())
    await controllers.start()
    assert model.started == [VERSION]
    assert controllers.shown() == {"models": [{"model": "m", "versions": []}], "rollouts": []}
    running(controllers)
    async with asyncio.timeout(20):
        await model.grown.wait()
        while True:
            if ScaleLog(store).latest():
                break
            await asyncio.sleep(0.01)
    (shown,) = controllers.shown()["models"]
    assert (model.size, shown["wanted"], shown["demand"]) == (2, 2, 4)
    assert "4 requests" in shown["reason"]


async def test_beside_another_controller_nothing_is_done_until_it_is_gone(
    store: Engine, running, monkeypatch
) -> None:
    monkeypatch.setattr("ridgeline.serving.control.scale_log._RENEW_S", 0.01)
    other = Lease(store, "controller", "another", lasts_s=600)
    assert other.renew()
    model = Model()
    running(Controllers(store, {"m": model}, Front()))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(model.grown.wait(), 0.3)
    other.give_up()
    await asyncio.wait_for(model.grown.wait(), 20)
    assert model.size == 2
