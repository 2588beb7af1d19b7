"""A replica whose program is not ours (vLLM, SGLang): it starts, is watched and ends as ours do.

Law of this file: the program is never started but behind `launch.shim`, so that nothing of it
outlives us. It does not say where it is in its start; so we choose its port, look at its health
page, read its log for the stages, and call it ready once it gave a token. `replicas` follows a
`ForeignProcess` as it follows a `launch.local.Child`.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from aiohttp import ClientSession

from ridgeline.launch.local import Child
from ridgeline.launch.start_clock import StartClock, stage_event
from ridgeline.serving.control.foreign_log import GrowingLog, Marks
from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.gateway.probe import Probe
from ridgeline.serving.policy.health import Sign

_HOST = "127.0.0.1"
#: Between two looks at one that starts; so stages are exact to this.
_EVERY_S = 0.1
_LOOK_S = 2.0
#: One whose health page is good and that gives no token is not asked ten times a second.
_AGAIN_S = 1.0
#: For the first token: it may compile, and it may wait for many others that start too.
_FIRST_TOKEN_S = 600.0
#: How long the shim may take to end everything; a process in the kernel's hands ends later.
_ENDING_S = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: `command` of a port; `serves` is the model's name there.

    `marks` are words of its log and the stage of a start that each begins, in their order.
    """

    kind: str
    command: Callable[[int], Sequence[str]]
    env: Mapping[str, str]
    marks: Sequence[tuple[str, str]]
    serves: str


class Loan(Protocol):
    """Devices that belong to one replica until it gives them back."""

    @property
    def env(self) -> Mapping[str, str]:
        """What tells a program to use these and no others."""

    def close(self) -> None:
        """They are free again."""


class ForeignLaunch:
    """How one replica is started, each time it must be. `borrow` gets its devices.

    They are its own from its first start until `close`: one that is started again has the same.
    """

    def __init__(self, name: str, program: Program, log: Path, borrow: Callable[[], Loan]) -> None:
        self.name = name
        self.log = log
        self._program = program
        self._borrow = borrow
        self._loan: Loan | None = None

    async def start(self) -> "ForeignProcess":
        """One life. LaunchError where no device is free, or Python cannot be started."""
        if self._loan is None:
            self._loan = self._borrow()
        return await ForeignProcess.start(self._program, self._loan.env, self.log)

    def close(self) -> None:
        """The replica is gone for good: its devices are free."""
        if self._loan is not None:
            self._loan.close()
            self._loan = None


class ForeignProcess:
    """One life of a program, from its start to its end."""

    def __init__(self, program: Program, shim: Child, port: "_Port", log: GrowingLog) -> None:
        self._program = program
        self._shim = shim
        self._port = port
        self._log = log
        self._marks = Marks(program.marks)
        self._turn: dict[str, Any] = {}
        self._clock = StartClock(time.monotonic(), self._turns)
        self._address = ReplicaAddress(
            program.kind, f"http://{_HOST}:{port.number}", program.serves
        )

    @classmethod
    async def start(cls, program: Program, devices: Mapping[str, str], log: Path) -> Self:
        """Start it on a port of its own and these devices."""
        port, growing = _Port(), GrowingLog(log)
        words = program.command(port.number)
        argv = [sys.executable, "-m", "ridgeline.launch.shim", "--", *words]
        try:
            shim = await Child.start(argv, env={**program.env, **devices}, log=log)
        except BaseException:  # cancelled as well
            port.close()
            raise
        return cls(program, shim, port, growing)

    @property
    def returncode(self) -> int | None:
        """None while it runs, or something that it started does."""
        return self._shim.returncode

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What one of our own would say, until it has ended."""
        if await anext(self._shim.events(), None) is None:
            return  # it could not even be started
        yield self._begin("import")
        yield {"event": "listening", "url": self._address.url}
        while self.returncode is None:
            gives = await self._gives_a_token()
            for stage in filter(None, map(self._marks.begun, self._log.lines())):
                yield self._begin(stage)
            if gives:
                self._clock.end()
                spent_s = self._clock.spent_s
                yield {"event": "ready", "engine": self._program.kind, "stages_s": spent_s}
                break
            await asyncio.sleep(_EVERY_S if gives is None else _AGAIN_S)
        await self.wait()

    async def wait(self) -> int:
        """Its exit status, once it and all that it started have ended."""
        status = await self._shim.wait()
        self._port.close()
        return status

    async def stop(self, grace_s: float, *, at_once: bool = False) -> int:
        """Ask it to leave; after `grace_s`, or `at_once`, end it and all that it started."""
        if not at_once and self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._shim.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                return await asyncio.wait_for(self.wait(), grace_s)
        return await self.kill()

    async def kill(self) -> int:
        """End it and all that it started now."""
        await self._shim.stop(_ENDING_S, at_once=True)
        return await self.wait()

    def last_words(self) -> str:
        """Why it ended, as far as its log says."""
        return "\n".join(filter(None, (self._log.cause(), self._shim.last_words())))

    def _begin(self, stage: str) -> dict[str, Any]:
        self._clock.begin(stage)
        return self._turn

    def _turns(self, stage: str, ended: str, spent_s: float) -> None:
        self._turn = stage_event(stage, ended, spent_s)

    async def _gives_a_token(self) -> bool | None:
        """Whether it answers a request; None where it does not even say that it could."""
        async with ClientSession() as session:
            probe = Probe(session, self._address, _LOOK_S)
            if await probe.ready() is not Sign.READY:
                return None
            return not await probe.first_token(self._program.serves, _FIRST_TOKEN_S)


class _Port:
    """A port that nobody else is given until it is closed, and that the program can listen on.

    Minutes pass before a program listens. Linux lets a second socket have a port that is bound but
    does not listen, where both allow it (SO_REUSEADDR, as servers do), and gives it to nobody who
    asks for any free one. Elsewhere it is let go of at once, and most probably still free then.
    """

    def __init__(self) -> None:
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((_HOST, 0))
        self.number = int(self._held.getsockname()[1])
        if sys.platform != "linux":
            self._held.close()

    def close(self) -> None:
        self._held.close()
