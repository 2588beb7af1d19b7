"""Keeps replicas alive on this machine: start, follow, restart with back-off.

Called by `deployment`. What a replica says (`launch.local.announce`, or `foreign` in its place)
becomes calls on a `Listener`; when to start again is asked of `policy.restart`.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
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


class Process(Protocol):
    """One life of a replica: `launch.local.Child`, or `foreign.ForeignProcess`."""

    @property
    def returncode(self) -> int | None:
        """None while it runs."""

    def events(self) -> AsyncIterator[dict[str, Any]]:
        """What it says, until it has ended."""

    async def wait(self) -> int:
        """Its exit status, once it has ended."""

    async def stop(self, grace_s: float, *, at_once: bool = False) -> int:
        """Ask it to end what runs; after `grace_s`, or `at_once`, end it."""

    async def kill(self) -> int:
        """End it now."""

    def last_words(self) -> str:
        """What it wrote at its end."""


class Startable(Protocol):
    """How one replica is started: a `Launch` of our own, or a `foreign.ForeignLaunch`."""

    @property
    def name(self) -> str:
        """The replica's; no other has it."""

    @property
    def log(self) -> Path:
        """What it writes."""

    async def start(self) -> Process:
        """One life of it."""

    def close(self) -> None:
        """It is gone for good."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a replica of our own is started: `ridgeline` with these arguments."""

    name: str
    arguments: Sequence[str]
    log: Path
    env: Mapping[str, str]

    @property
    def argv(self) -> list[str]:
        """`ridgeline …` by this very Python, so that it is the same installation."""
        return [sys.executable, "-m", "ridgeline", *self.arguments, "--supervised"]

    async def start(self) -> Child:
        """One life of it."""
        return await Child.start(self.argv, env=self.env, log=self.log)

    def close(self) -> None:
        """It had nothing but its process."""


class ManagedReplica:
    """One replica, from its first start until `stop`. A start may take `start_most_s`."""

    def __init__(self, launch: Startable, listener: Listener, start_most_s: float) -> None:
        self._launch = launch
        self._start_most_s = start_most_s
        self._end_reason = ""
        self._listener = listener
        self._child: Process | None = None
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
        try:
            await self._lives()
        finally:
            self._launch.close()

    async def _lives(self) -> None:
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
            reason, self._end_reason = self._end_reason or f"exit status {status}", ""
            await self._listener.died(self._launch.name, f"{reason}; {decision.reason}")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), decision.delay_s)

    async def stop(self, grace_s: float, *, at_once: bool = False) -> None:
        """Drain and end it for good; with `at_once` running answers end with an error."""
        self._stopped.set()
        if self._child is not None:
            await self._child.stop(grace_s, at_once=at_once)

    async def end(self, reason: str) -> None:
        """End its process, at once, for this reason; it is started again."""
        if self._child is not None and self._child.returncode is None:
            self._end_reason = reason
            await self._child.kill()

    async def _live(self) -> int:
        """One life: its exit status. LaunchError where it takes too long to be ready."""
        self._child = child = await self._launch.start()
        if self._stopped.is_set():  # told so while it was being started
            return await child.kill()
        try:
            async with asyncio.timeout(self._start_most_s) as limit:
                async for event in child.events():
                    await self._hear(event)
                    if event.get("event") == "ready":
                        limit.reschedule(None)
                return await child.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            raise LaunchError(
                f"was not ready after {self._start_most_s:g} s:\n{child.last_words()}",
                where=f"replica {self._launch.name}",
                remedy=f"more time, replicas.start_timeout, or see its log: {self._launch.log}",
            ) from None
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
