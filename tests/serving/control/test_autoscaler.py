"""One round after the other: looked, decided, written down, done, and only by who may."""

from sqlalchemy import Engine

from ridgeline.serving.control.autoscaler import Autoscaler, Scaling
from ridgeline.serving.control.scale_log import ScaleLog
from ridgeline.serving.policy.scale import Settings, Step

SETTINGS = Settings(least=0, most=5, per_replica=2, up=Step(5, 60), down_after_s=0, zero_after_s=0)


class World:
    def __init__(self) -> None:
        self.size = 0
        self.held = 0

    def resize(self, wanted: int) -> None:
        self.size = wanted

    async def look(self):
        return {"replicas": [], "queues": [], "held": {"m": self.held}}


async def test_what_changes_is_done_and_on_record(store: Engine) -> None:
    world, log = World(), ScaleLog(store)
    scaler = Autoscaler(Scaling("m", SETTINGS), world, world.look, log)
    await scaler.round()
    assert (world.size, log.latest()) == (0, [])
    world.held = 5
    await scaler.round()
    assert world.size == 3
    await scaler.round()
    (written,) = log.latest("m")
    assert (written.before, written.replicas, written.demand) == (0, 3, 5)
    assert "5 requests" in written.reason
    assert scaler.latest is not None
    assert scaler.latest.replicas == 3
    world.held = 0
    await scaler.round()
    assert world.size == 0


async def test_a_schedule_is_asked_each_time(store: Engine) -> None:
    world = World()
    scaling = Scaling("m", SETTINGS, floor=lambda unix_s: 2 if unix_s > 1e9 else 0)
    await Autoscaler(scaling, world, world.look, ScaleLog(store)).round()
    assert world.size == 2


async def test_who_has_no_lease_does_nothing(store: Engine) -> None:
    world = World()
    world.held = 5
    scaler = Autoscaler(Scaling("m", SETTINGS), world, world.look, ScaleLog(store), lambda: False)
    assert await scaler.round() is None
    assert world.size == 0
