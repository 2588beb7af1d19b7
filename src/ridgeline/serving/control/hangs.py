"""The loop that ends replicas which hang: look, ask `policy.hang`, act.

Ended, they are started again as if they had died. Where this loop itself comes late, as after a
suspended machine, nothing was watched meanwhile, and every count begins anew.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from ridgeline.serving.policy.hang import Out, hung
from ridgeline.serving.policy.states import State

#: So late a round is no round: others were not on time either.
_LATE = 3.0


class Endable(Protocol):
    """A model whose replicas run on this machine."""

    @property
    def ready_ever(self) -> Iterable[str]:
        """Its replicas that were ready in this life, and do not leave."""

    async def end(self, replica: str, reason: str) -> None:
        """Its process is ended; it is started again."""


class Hangs:
    """`run` until cancelled. `look` gives the gateway's status."""

    def __init__(
        self,
        models: Mapping[str, Endable],
        look: Callable[[], Awaitable[Mapping[str, Any]]],
        may_act: Callable[[], bool] = lambda: True,
        *,
        every_s: float = 2.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = models
        self._look = look
        self._may_act = may_act
        self._every_s = every_s
        self._now_s = now_s
        self._since_s: dict[str, float] = {}
        self._last_s = now_s()

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.round()

    async def round(self) -> None:
        """One look, and who hangs is ended."""
        status = await self._look()
        now_s = self._now_s()
        if now_s - self._last_s > _LATE * self._every_s or not self._may_act():
            self._since_s.clear()
        self._last_s = now_s
        states = {one["id"]: State(one["state"]) for one in status.get("replicas", ())}
        is_out = {name for name, state in states.items() if state is State.DOWN}
        self._since_s = {name: self._since_s.get(name, now_s) for name in is_out}
        if not self._may_act():
            return
        for model in list(self._models.values()):
            seen = [Out(name, self._out_s(name, now_s)) for name in model.ready_ever]
            for one in hung(seen):
                self._since_s.pop(one.replica, None)
                await model.end(one.replica, one.reason)

    def _out_s(self, replica: str, now_s: float) -> float | None:
        since_s = self._since_s.get(replica)
        return None if since_s is None else now_s - since_s
