"""The loop of one model's replicas: look, ask `policy.scale`, write down what changes, act.

    gateway's status ─▶ look ─▶ scale ─▶ decision ─▶ store ─▶ resize
                        (every `every_s`, while we hold the lease)

Only one controller of a platform may act: who holds the lease in the store. What was decided stays
on record for a week.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ridgeline.errors import StoreError
from ridgeline.serving.control.looks import look_of
from ridgeline.serving.control.scale_log import ScaleLog
from ridgeline.serving.policy.scale import Look, Scaled, Settings, remembered, scale

_LOG = logging.getLogger(__name__)


class Sized(Protocol):
    """What is scaled."""

    @property
    def size(self) -> int:
        """Replicas that serve or start."""

    def resize(self, wanted: int) -> None:
        """From now on there should be so many."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How one model is scaled; `floor` is what a schedule wants at a time (Unix seconds).

    `start_s` is how long a start takes, as far as is known now.
    """

    model: str
    settings: Settings
    floor: Callable[[float], int] = lambda _: 0
    start_s: Callable[[], float] = lambda: 0.0
    every_s: float = 2.0


class Autoscaler:
    """One model's; `run` until cancelled. `look` gives the gateway's status.

    `may_act` says whether we hold the lease.
    """

    def __init__(
        self,
        scaling: Scaling,
        deployment: Sized,
        look: Callable[[], Awaitable[Mapping[str, Any]]],
        log: ScaleLog,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.scaling = scaling
        self._deployment = deployment
        self._look = look
        self._log = log
        self._may_act = may_act
        self._looks: list[Look] = []
        self._said = ""
        self._released = False
        self.latest: Scaled | None = None

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while not self._released:
            try:
                await self.round()
            except StoreError as error:  # to scale matters more than to have it on record
                _LOG.error("the autoscaler cannot write down what it does: %s", error)
            await asyncio.sleep(self.scaling.every_s)

    def release(self) -> None:
        """Decide nothing any more, not even a round that has begun."""
        self._released = True

    async def round(self) -> Scaled | None:
        """One look and what follows; None where another controller acts."""
        if self._released or not self._may_act():
            self._looks = []  # what we would remember is not all of it
            return None
        scaling, size = self.scaling, self._deployment.size
        now = look_of(await self._look(), scaling.model, size, time.monotonic_ns())
        settings = replace(scaling.settings, start_s=scaling.start_s())
        self._looks = remembered([*self._looks, now], settings, now.at_ns)
        floor = scaling.floor(time.time())
        self.latest = decided = scale(self._looks, settings, floor=floor)
        if decided.replicas != size and not self._released:
            self._deployment.resize(decided.replicas)
            await asyncio.to_thread(self._log.wrote, scaling.model, size, decided, now)
        return decided
