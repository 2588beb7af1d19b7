"""`ridgeline up` on a spec, as a process of its own, with eyes on every process it starts."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from cp_streams import Stream, play
from sqlalchemy import select

from ridgeline.launch import running
from ridgeline.serving.control.scale_log import ScaleLog, Written
from ridgeline.serving.gateway.place import database_url
from ridgeline.store.database import open_store, reading
from ridgeline.store.tables import reservations

PATIENCE_S = 60.0
_LOOK_S = 0.02


class Up:
    """The platform `name`, from `start` to `interrupt` or `kill`; it may be started again."""

    def __init__(self, spec: Path, name: str, session: aiohttp.ClientSession) -> None:
        self.url = ""
        self.name = name
        self.streams: list[Stream] = []
        #: Every process that was ever seen to belong to it.
        self.seen: dict[int, psutil.Process] = {}
        self.process: asyncio.subprocess.Process | None = None
        self.log = spec.with_suffix(".log")
        self._spec = spec
        self._session = session
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Run it, and wait until its gateway listens."""
        argv = [sys.executable, "-m", "ridgeline", "up", str(self._spec), "--port", "0"]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        await self.until(lambda: any(one.pid == self.pid for one in running.read()))
        self.url = next(one.url for one in running.read() if one.pid == self.pid)

    @property
    def pid(self) -> int:
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()
        return self.process.pid

    async def interrupt(self) -> int:
        """Ctrl-C; its exit status once it has drained."""
        self.look_around()
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    async def kill(self) -> None:
        """As by kill -9."""
        self.look_around()
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    def look_around(self) -> list[psutil.Process]:
        """Every process that it has now; they are remembered."""
        there = psutil.Process(self.pid).children(recursive=True)
        self.seen |= {one.pid: one for one in there}
        return there

    def process_of(self, replica: str) -> psutil.Process | None:
        """The replica's process, by the usage log that it alone writes."""
        for one in self.look_around():
            try:
                argv = one.cmdline()
            except psutil.Error:
                continue
            if any(part.endswith(f"usage/{replica}") for part in argv):
                return one
        return None

    async def left_over(self, within_s: float) -> list[psutil.Process]:
        """Of all processes that it ever had, those that still run."""
        there = list(self.seen.values())
        _, alive = await asyncio.to_thread(psutil.wait_procs, there, timeout=within_s)
        return list(alive)

    async def status(self) -> dict[str, Any]:
        """What the console shows; empty where nobody answers just now."""
        try:
            async with self._session.get(f"{self.url}/console.json") as answer:
                told: dict[str, Any] = await answer.json()
                return told
        except (aiohttp.ClientError, ConnectionError):
            return {}

    async def states(self) -> dict[str, str]:
        """Each replica's state."""
        return {one["id"]: one["state"] for one in (await self.status()).get("replicas", [])}

    async def until_states(self, claim: Callable[[dict[str, str]], object]) -> dict[str, str]:
        """Wait until the replicas' states are so."""
        states: dict[str, str] = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    states = await self.states()
                    if claim(states):
                        return states
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"{states}: {self.log.read_text()}") from None

    async def until_ready(self, count: int) -> None:
        """Exactly so many are there, all ready."""
        await self.until_states(lambda states: list(states.values()) == ["ready"] * count)

    async def until(self, claim: Callable[[], object]) -> None:
        """Wait until it is so."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if claim():
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(self.log.read_text()) from None

    def ask(self, tokens: int, *, n: int = 1) -> Stream:
        """A stream that runs from now on."""
        stream = Stream()
        self.streams.append(stream)
        self.keep(play(self._session, self.url, stream, tokens, n=n))
        return stream

    def keep(self, work: Any) -> asyncio.Task[Any]:
        """Run beside the test; cancelled at its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def until_ended(self) -> list[str]:
        """How all streams ended."""
        await self.until(lambda: all(one.end for one in self.streams))
        return [one.end for one in self.streams]

    def reserved(self) -> Sequence[Any]:
        """Reservations that are open."""
        store = open_store(database_url(self.name, None))
        try:
            with reading(store) as connection:
                return connection.execute(select(reservations)).all()
        finally:
            store.dispose()

    def decided(self) -> Sequence[Written]:
        """What the autoscaler has changed, oldest first."""
        store = open_store(database_url(self.name, None))
        try:
            return ScaleLog(store).latest(most=1000)[::-1]
        finally:
            store.dispose()

    async def end(self) -> None:
        """Whatever the test has left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.process is not None and self.process.returncode is None:
            await self.kill()
        for one in await self.left_over(5.0):
            one.kill()


@asynccontextmanager
async def up(folder: Path, name: str, spec: str) -> AsyncIterator[Up]:
    """A platform that runs, and of which nothing is left afterwards."""
    path = folder / "platform.yaml"
    path.write_text(f"name: {name}\n{spec}")
    connector = aiohttp.TCPConnector(limit=0, force_close=True)  # each worker gets its share
    async with aiohttp.ClientSession(connector=connector) as session:
        made = Up(path, name, session)
        try:
            await made.start()
            yield made
        finally:
            await made.end()
