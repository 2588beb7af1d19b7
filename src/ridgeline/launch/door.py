"""A way into a process that leads a platform, for commands of the same user on the same machine.

A Unix socket beside the platform's note, for its owner only; it speaks `calls`. An answer is
`{"gives": …}`, or `{"problem", "where", "remedy"}` of an error that is meant for the user.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ridgeline.errors import LaunchError, RidgelineError, SpecError
from ridgeline.launch.calls import MOST_LINE_BYTES, Calls, Handler
from ridgeline.launch.running import Running

#: What the system takes as a socket's path, at most (108 on Linux, 104 elsewhere).
_MOST_PATH_BYTES = 100

Answer = Callable[[Mapping[str, Any]], Awaitable[Any]]


class Door:
    """Open from `opened` until `close`."""

    def __init__(self, path: Path, handlers: Mapping[str, Answer]) -> None:
        self._path = path
        self._handlers = {name: _told(answer) for name, answer in handlers.items()}
        self._server: asyncio.Server | None = None
        self._callers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Let commands in. Raises LaunchError where the socket cannot be made."""
        self._path.unlink(missing_ok=True)  # of a platform of this name that was killed
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short(self._path) as address:
                listening.bind(address)
            self._path.chmod(0o600)  # before anybody can connect: nobody listens yet
            self._server = await asyncio.start_unix_server(
                self._hear, sock=listening, limit=MOST_LINE_BYTES
            )
        except OSError as error:
            listening.close()
            raise LaunchError(
                f"commands cannot be let in there: {error.strerror}",
                where=str(self._path),
                remedy="RIDGELINE_STATE=… names a folder that can be written",
            ) from error

    async def close(self) -> None:
        """Nobody comes in any more."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._callers.add(task)
        with suppress(asyncio.CancelledError):
            await Calls(reader, writer, self._handlers).run()
        self._callers.discard(task)


def door_of(running: Running) -> Path:
    """Where a platform's door is."""
    return running.file.with_suffix(".sock")


async def ask(running: Running, call: str, **values: Any) -> Any:
    """What a platform that is up answers. Raises what it says is wrong, LaunchError."""
    try:
        with _short(door_of(running)) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=MOST_LINE_BYTES)
    except OSError as error:
        raise LaunchError(
            f"{running.name} (process {running.pid}) lets no command in: {error.strerror}",
            where=str(door_of(running)),
            remedy="run it as the same user; a platform of an older version has to be restarted",
        ) from error
    calls = Calls(reader, writer, {})
    hearing = asyncio.create_task(calls.run())
    try:
        answer = await calls.ask(call, **values)
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
    if "gives" in answer:
        return answer["gives"]
    raise SpecError(answer["problem"], where=answer["where"], remedy=answer["remedy"])


def _told(answer: Answer) -> Handler:
    """An error for the user arrives as one, with its remedy."""

    async def handler(values: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"gives": await answer(values)}
        except RidgelineError as error:
            return {"problem": error.problem, "where": error.where, "remedy": error.remedy}

    return handler


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """The path in a form that fits into a socket's address."""
    if len(os.fsencode(path)) <= _MOST_PATH_BYTES or sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
