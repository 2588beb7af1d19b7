"""Two ways to run replicas: ours, and scaling by queue depth as it is done everywhere.

The naive rule is kept here so that each of its five failures stays a test:

    how many     ceil(waiting / threshold), of what replicas say of themselves
    starting     nobody counts them: what is missing is what is not ready
    ready        when the health page says 200
    taken away   killed at once
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine

from ridgeline.platform import managed
from ridgeline.serving.control.autoscaler import Autoscaler
from ridgeline.serving.control.scale_log import ScaleLog
from ridgeline.serving.gateway import fleet, probe
from ridgeline.serving.policy.health import Health, Sign, judge
from ridgeline.serving.policy.states import State

if TYPE_CHECKING:  # each would import the other
    from cp_world import World

#: How often either looks.
EVERY_S = 0.1


@dataclass(frozen=True)
class Rule:
    """`scale` runs until cancelled; `patches` hold while its world is there."""

    name: str
    scale: "Callable[[World, Engine], Coroutine[Any, Any, None]]"
    patches: tuple[tuple[object, str, object], ...] = ()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for where, name, value in self.patches:
                patch.setattr(where, name, value)
            yield


async def _ours(world: "World", store: Engine) -> None:
    scaling = replace(world.model.scaling, every_s=EVERY_S)
    await Autoscaler(scaling, world, world.gateway.look, ScaleLog(store)).run()


async def _by_queue_depth(world: "World", _store: Engine) -> None:
    settings = world.model.scaling.settings
    while True:
        replicas = world.gateway.status()["replicas"]
        ready = [one for one in replicas if one["state"] == State.READY]
        waiting = sum(one["waiting"] or 0 for one in ready)
        wanted = ceil(waiting / settings.per_replica)
        wanted = min(max(wanted, settings.least), settings.most)
        missing = wanted - len(ready)
        if missing > 0:
            world.resize(min(world.size + missing, settings.most))
        elif missing < 0:
            world.resize(wanted)
        await asyncio.sleep(EVERY_S)


def _by_health_page(health: Health, sign: Sign) -> Health:
    judged = judge(health, sign)
    if sign is Sign.READY and judged.state in (State.STARTING, State.LOADING, State.DOWN):
        return Health(State.READY, reason="its health page says 200")
    return judged


OURS = Rule("ours", _ours)
NAIVE = Rule(
    "naive",
    _by_queue_depth,
    (
        (managed, "DRAIN_S", 0.0),
        (fleet, "judge", _by_health_page),
        (probe, "_PATHS", ("/health",)),
    ),
)
