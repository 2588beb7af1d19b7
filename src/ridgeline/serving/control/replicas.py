"""Keeps replicas of our own engine alive on this machine: start, follow, restart with back-off.

Called by `platform_run`. What a replica says (`launch.local.announce`) becomes calls on a
`Listener`; when to start again is asked of `policy.restart`.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ridgeline.errors import LaunchError, ModelError
from ridgeline.launch.local import Child
from ridgeline.serving.policy.restart import restart


class Listener(Protocol):
    """Who wants to know how a replica fares."""

    async def listens(self, replica: str, url: str) -> None:
        """It has an address; it may not be ready yet."""

    async def said(self, replica: str, event: Mapping[str, Any]) -> None:
        """It is at a stage of its start, or is ready (`event["event"]`).

        Of one that is ready, `start_s` says how long all of its start took.
        """

    async def died(self, replica: str, reason: str) -> None:
        """It is gone; it will be started again."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How one replica is started: `ridgeline` with these arguments. `name` is the only one so."""

    name: str
    arguments: Sequence[str]
    log: Path
    env: Mapping[str, str]

    @property
    def argv(self) -> list[str]:
        """`ridgeline …` by this very Python, so that it is the same installation."""
        return [sys.executable, "-m", "ridgeline", *self.arguments, "--supervised"]


class ManagedReplica:
    """One replica, from its first start until `stop`."""

    def __init__(self, launch: Launch, listener: Listener) -> None:
        self._launch = launch
        self._listener = listener
        self._child: Child | None = None
        self._stopped = asyncio.Event()
        self._was_ready = False
        self._began_s = 0.0

    @property
    def name(self) -> str:
        """Its name on this platform."""
        return self._launch.name

    async def run(self) -> None:
        """Until stopped: start it, follow it, and start it again when it dies.

        Raises the error that a first start ended with: it would end so again.
        """
        deaths = 0
        while not self._stopped.is_set():
            self._began_s = time.monotonic()
            status = await self._live()
            if self._stopped.is_set():
                return
            if not self._was_ready:
                raise self._stillborn(status)
            decision = restart(deaths, time.monotonic() - self._began_s)
            deaths = decision.deaths
            await self._listener.died(self._launch.name, f"exit status {status}; {decision.reason}")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), decision.delay_s)

    async def stop(self, grace_s: float, *, at_once: bool = False) -> None:
        """Drain and end it for good; with `at_once` running answers end with an error."""
        self._stopped.set()
        if self._child is not None:
            await self._child.stop(grace_s, at_once=at_once)

    async def _live(self) -> int:
        """One life: its exit status."""
        self._child = child = await Child.start(
            self._launch.argv, env=self._launch.env, log=self._launch.log
        )
        if self._stopped.is_set():  # told so while it was being started
            return await child.kill()
        try:
            async for event in child.events():
                await self._hear(event)
            return await child.wait()
        finally:
            # Cancelled, or a listener raised: no replica lives without somebody who follows it.
            if child.returncode is None:
                await child.kill()

    async def _hear(self, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "listening":
                await self._listener.listens(self._launch.name, event["url"])
            case "failed":
                raise ModelError(event["problem"], where=event["where"], remedy=event["remedy"])
            case "ready":
                self._was_ready = True
                start_s = time.monotonic() - self._began_s
                await self._listener.said(self._launch.name, {**event, "start_s": start_s})
            case _:
                await self._listener.said(self._launch.name, event)

    def _stillborn(self, status: int) -> LaunchError:
        assert self._child is not None
        return LaunchError(
            f"ended with status {status} before it was ready:\n{self._child.last_words()}",
            where=f"replica {self._launch.name}",
            remedy=f"the whole log: {self._launch.log}",
        )
