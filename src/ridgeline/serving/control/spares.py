"""Processes that have imported all that a replica needs, and wait to be told which one to be.

Law: a spare is used only where it would have been started just so, in the same environment; where
there is none, a replica starts from nothing. Whoever makes `Spares` closes it: then none is left.
"""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import LaunchError
from ridgeline.launch.local import Child
from ridgeline.serving.control.replicas import Launch, Process

#: What starts a spare.
COMMAND = (sys.executable, "-m", "ridgeline", "spare")
#: How long a spare may take to import all.
_IMPORT_S = 120.0


class Spares:
    """Keeps `count` of them, started with `env`; they write errors to `log` while they wait."""

    def __init__(self, count: int, log: Path, env: Mapping[str, str]) -> None:
        self._count = count
        self._log = log
        self._env = dict(env)
        self._waiting: list[Child] = []
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def fill(self) -> None:
        """Start as many as are missing; returns at once.

        Not while a replica starts: a spare's imports take the same cores.
        """
        for _ in range(self._count - len(self._waiting) - len(self._starting)):
            task = asyncio.create_task(self._add())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def filled(self) -> None:
        """Until those that were missing wait, or could not be started."""
        await asyncio.gather(*self._starting)

    async def start(self, launch: Launch) -> Process:
        """A replica's process: a spare that becomes it, or a new one."""
        child = await self._become(launch) if launch.env == self._env else None
        return child or await launch.start()

    async def close(self) -> None:
        """None is left."""
        self._count = 0
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(child.kill() for child in self._waiting))
        self._waiting.clear()

    async def _become(self, launch: Launch) -> Child | None:
        verb, *arguments = launch.arguments
        while self._waiting and verb == "serve":
            child = self._waiting.pop(0)
            if child.returncode is not None:
                continue  # it has died while it waited; the next one
            try:
                await child.tell({"arguments": arguments}, launch.log)
            except LaunchError:  # it dies in this instant
                await child.kill()
                continue
            return child
        return None

    async def _add(self) -> None:
        """One more, once it has imported all; where that fails there is none."""
        child = await Child.start(COMMAND, env=self._env, log=self._log)
        try:
            async with asyncio.timeout(_IMPORT_S):
                async for event in child.events():
                    if event.get("event") == "spare":
                        self._waiting.append(child)
                        return
        except TimeoutError:
            pass  # as if it had died
        finally:
            if child not in self._waiting and child.returncode is None:
                await child.kill()


@dataclass(frozen=True, slots=True)
class SparedLaunch:
    """A launch whose process is a spare, where one waits; `replicas` starts it as any other."""

    launch: Launch
    spares: Spares

    @property
    def name(self) -> str:
        """The replica's."""
        return self.launch.name

    @property
    def log(self) -> Path:
        """What it writes, from when it became the replica."""
        return self.launch.log

    async def start(self) -> Process:
        """One life of it."""
        return await self.spares.start(self.launch)

    def close(self) -> None:
        """Nothing was lent to it."""
        self.launch.close()
