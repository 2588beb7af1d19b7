"""The loop that ends replicas which hang."""

import pytest

from ridgeline.serving.control.hangs import Hangs


class World:
    """A model with replicas, the gateway's status, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.states: dict[str, str] = {"m-0": "ready", "m-1": "ready"}
        self.ready_ever = ["m-0", "m-1"]
        self.ended: list[tuple[str, str]] = []
        self.may_act = True
        self.hangs = Hangs({"m": self}, self.look, lambda: self.may_act, now_s=lambda: self.now_s)

    async def look(self):
        return {"replicas": [{"id": name, "state": state} for name, state in self.states.items()]}

    async def end(self, replica, reason) -> None:
        self.ended.append((replica, reason))
        del self.states[replica]

    async def rounds(self, lasting_s: float, *, every_s: float = 2.0) -> None:
        """Rounds as they come in so much time."""
        ends_s = self.now_s + lasting_s
        while self.now_s < ends_s:
            self.now_s += every_s
            await self.hangs.round()


@pytest.fixture
def world() -> World:
    return World()


async def test_one_that_stays_out_is_ended_once(world):
    await world.rounds(100)
    world.states["m-1"] = "down"
    await world.rounds(30)
    assert world.ended == []
    await world.rounds(4)
    assert [name for name, _ in world.ended] == ["m-1"]
    await world.rounds(100)
    assert len(world.ended) == 1


async def test_one_that_comes_back_begins_anew(world):
    world.states["m-1"] = "down"
    await world.rounds(28)
    world.states["m-1"] = "ready"
    await world.rounds(2)
    world.states["m-1"] = "down"
    await world.rounds(28)
    assert world.ended == []


async def test_who_starts_or_leaves_is_not_meant(world):
    world.states["m-1"] = "down"
    world.ready_ever = ["m-0"]
    await world.rounds(300)
    assert world.ended == []


async def test_a_machine_that_slept_ends_nobody(world):
    world.states["m-1"] = "down"
    await world.rounds(20)
    world.now_s += 3600
    await world.rounds(20)
    assert world.ended == []
    await world.rounds(14)
    assert len(world.ended) == 1


async def test_only_who_holds_the_lease_acts(world):
    world.states["m-1"] = "down"
    world.may_act = False
    await world.rounds(300)
    world.may_act = True
    await world.rounds(20)
    assert world.ended == []


async def test_a_gateway_that_does_not_answer_says_nothing(world):
    async def nothing():
        return {}

    hangs = Hangs({"m": world}, nothing, now_s=lambda: 0.0)
    await hangs.round()
    assert world.ended == []
