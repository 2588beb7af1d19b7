"""Processes on this machine: started with a log of their own, stopped with grace, never orphaned.

The child holds the reading end of a pipe as its standard input and leaves when that closes
(`leave_with_parent`), so that it goes whenever we go, kill -9 included, on any POSIX system.
What it says on standard output are events for us, one JSON object a line.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ridgeline.errors import LaunchError

#: An event is one line; a longer one is not an event.
_LINE_BYTES = 1 << 20


class Child:
    """One process that we started. `log` has what it wrote to standard error."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def start(cls, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Self:
        """Start `argv` in a session of its own (Ctrl-C reaches us alone, and we drain it).

        Raises LaunchError when the program or the log's folder is not there.
        """
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as err:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    env={**os.environ, **env},
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=err,
                    limit=_LINE_BYTES,
                    start_new_session=True,
                )
        except OSError as error:
            raise LaunchError(
                f"cannot start {argv[0]}: {error.strerror}", where="launch"
            ) from error
        return cls(process, log)

    @property
    def pid(self) -> int:
        """The process id, also after the process has ended."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""
        return self._process.returncode

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What it says, until it closes its standard output; other lines are skipped."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event

    async def tell(self, order: Mapping[str, Any], log: Path) -> None:
        """One line for its standard input, after which it writes errors to `log`.

        Raises LaunchError where it is gone.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({**order, "log": str(log)}).encode() + b"\n")
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise LaunchError("it has ended", where="launch") from error
        self.log = log

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        return await self._process.wait()

    async def stop(self, grace_s: float, *, at_once: bool = False) -> int:
        """Ask it to drain (SIGTERM); after `grace_s` end it and all that it started (SIGKILL).

        With `at_once` it is asked twice, which means: do not wait for what runs.
        """
        self._signal(signal.SIGTERM)
        if at_once:
            self._signal(signal.SIGINT)  # two SIGTERM in a row may arrive as one
        try:
            return await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """End it and its whole session now."""
        self._signal(signal.SIGKILL)
        return await self._process.wait()

    def last_words(self, lines: int = 5) -> str:
        """The end of its log, for an error message."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is not None:
            return
        try:
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
        except ProcessLookupError:
            return  # it ended in this instant; wait() has its status


def announce(event: Mapping[str, Any]) -> None:
    """Said by a child: one event to the process that started it.

    A parent that is gone cannot listen; `leave_with_parent` deals with that.
    """
    try:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return


def leave_with_parent(leave: Callable[[], None]) -> None:
    """In a child: call `leave` (from a thread) as soon as the parent is gone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        leave()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def cores() -> int:
    """The processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
