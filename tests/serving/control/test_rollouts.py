"""The loop of rollouts over a model without processes: routes first, and the same after a kill."""

import asyncio
import math
import random

import msgspec
import pytest
from sqlalchemy import Engine

from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.rollouts import Rollouts
from ridgeline.serving.control.versions import Version
from ridgeline.serving.policy.gate import Arm, Criteria, moments
from ridgeline.serving.policy.rollout import Phase, Plan

OLD, NEW = (Version("m.gguf", {"dtype": dtype}) for dtype in ("bf16", "int8"))
PLAN = Plan(steps=(0.2, 0.5), keep_s=0.0)


class World:
    """A model and a gateway. `did` has every change of route and of replicas, in order."""

    def __init__(self) -> None:
        self.spec_version = OLD
        self.did: list[tuple[str, object]] = []
        self.ready_replicas = {OLD.id: 2, NEW.id: 0}
        self.room = True
        self.alike: tuple[bool, str] = (True, "0.99")
        self.arms: dict[str, Arm] = {}

    def ready(self, version: str) -> int:
        return self.ready_replicas[version]

    def has_room(self, version: Version) -> bool:
        return self.room

    async def is_alike(self, new: Version, old: Version) -> tuple[bool, str]:
        assert (new, old) == (NEW, OLD)
        return self.alike

    def runs(self, versions, shares) -> None:
        assert versions.keys() == shares.keys()
        self.did.append(("runs", dict(shares)))

    async def look(self):
        return {
            "arms": {
                "chat": {
                    name: msgspec.to_builtins(a, str_keys=True) for name, a in self.arms.items()
                }
            }
        }

    async def set_split(self, model, split) -> None:
        self.did.append(("split", None if split is None else split.weight))
        self.arms = {}

    def saw(self, requests: int, slower: float = 1.0, seed: int = 0) -> None:
        chance = random.Random(seed)
        for version, factor in ((OLD.id, 1.0), (NEW.id, slower)):
            values = [factor * math.exp(chance.gauss(0, 0.3)) for _ in range(requests)]
            times = {0: moments(values)}
            self.arms[version] = Arm(requests, 0, times, times)


@pytest.fixture
def world() -> World:
    return World()


async def rounds(rollouts: Rollouts, count: int = 4) -> None:
    for _ in range(count):
        await rollouts.round()
        await asyncio.sleep(0)


def begun(store: Engine, world: World) -> tuple[RolloutLog, Rollouts]:
    log = RolloutLog(store)
    log.start("chat", OLD, NEW, PLAN, Criteria())
    return log, Rollouts(log, {"chat": world}, world)


async def test_the_whole_way_and_what_was_done_for_it(store: Engine, world: World) -> None:
    log, rollouts = begun(store, world)
    await rounds(rollouts)
    assert world.did == [("split", 0.0), ("runs", {OLD.id: 1.0, NEW.id: 0.0})]
    world.ready_replicas[NEW.id] = 1
    await rounds(rollouts)
    assert world.did[2:] == [("split", 0.2), ("runs", {OLD.id: 1.0, NEW.id: 0.2})]
    assert log.latest()[0].evidence["planned"] > 30
    world.saw(2000)
    await rounds(rollouts, 1)
    assert world.did[4:] == [("split", 0.5), ("runs", {OLD.id: 1.0, NEW.id: 0.5})]
    second = log.latest()[0].evidence
    assert second["variance"] == pytest.approx(0.09, rel=0.2)  # as it was seen in the first step
    world.saw(2000, seed=1)
    await rounds(rollouts, 1)
    assert world.did[6:] == [("split", 1.0), ("runs", {OLD.id: 1.0, NEW.id: 1.0})]
    assert log.live("chat", OLD) == NEW
    await rounds(rollouts)
    assert world.did[8:] == [("split", 1.0), ("runs", {NEW.id: 1.0}), ("split", None)]
    assert log.latest()[0].rollout.phase is Phase.DONE


async def test_a_slower_version_goes_back_by_itself_and_the_route_goes_first(
    store: Engine, world: World
) -> None:
    log, rollouts = begun(store, world)
    world.ready_replicas[NEW.id] = 1
    await rounds(rollouts)
    world.did.clear()
    world.saw(100, slower=1.5)
    await rounds(rollouts, 1)
    assert world.did == [("split", 0.0), ("runs", {OLD.id: 1.0}), ("split", None)]
    (kept,) = log.latest()
    assert kept.rollout.phase is Phase.BACK
    assert "TTFT" in kept.rollout.reason
    assert any(gate["is_worse"] for gate in kept.evidence["gates"])


async def test_what_is_not_as_its_reference_gets_no_request(store: Engine, world: World) -> None:
    log, rollouts = begun(store, world)
    world.alike = (False, "code 0.41")
    world.ready_replicas[NEW.id] = 1
    await rounds(rollouts)
    assert {weight for what, weight in world.did if what == "split"} == {0.0, None}
    assert "code 0.41" in log.latest()[0].rollout.reason


async def test_without_room_nothing_is_started_for_long(store: Engine, world: World) -> None:
    log, rollouts = begun(store, world)
    world.room = False
    await rounds(rollouts, 1)
    assert log.latest()[0].rollout.phase is Phase.BACK
    assert world.did[-2:] == [("runs", {OLD.id: 1.0}), ("split", None)]


@pytest.mark.parametrize("after_rounds", range(6))
async def test_a_controller_that_is_killed_goes_on_where_it_was(
    store: Engine, world: World, after_rounds: int
) -> None:
    log, rollouts = begun(store, world)
    world.ready_replicas[NEW.id] = 1
    await rounds(rollouts, after_rounds)
    phase = log.latest()[0].rollout.phase
    world.did.clear()
    again = Rollouts(log, {"chat": world}, world)  # it knows nothing but what is stored
    await again.round()
    weight = {Phase.CHECKING: 0.0, Phase.CANARY: 0.2}[phase]
    assert world.did[0] == ("split", weight)
    for seed in range(3):
        world.saw(2000, seed=seed)
        await rounds(again, 4)
    assert log.latest()[0].rollout.phase is Phase.DONE


async def test_who_may_not_act_does_nothing(store: Engine, world: World) -> None:
    log = RolloutLog(store)
    log.start("chat", OLD, NEW, PLAN, Criteria())
    await Rollouts(log, {"chat": world}, world, lambda: False).round()
    assert world.did == []
