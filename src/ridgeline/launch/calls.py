"""Calls between a process and its child over the child's standard input and output.

Both sides ask and answer. A message is one JSON object a line: `{"id", "call", "with"}` asks,
`{"id", "gives"}` or `{"id", "fails"}` answers. Whoever is gone fails every call that waits.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from ridgeline.errors import LaunchError

#: A message is one line; a longer one breaks the connection.
MOST_LINE_BYTES = 64 * 1024 * 1024

Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]


class Calls:
    """One side of the connection. `handlers` answers what the other side asks, by name."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[str, Handler],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer and be answered until the other side is gone."""
        try:
            async for line in self._reader:
                self._hear(line)
        except (ValueError, ConnectionError):
            pass  # a line without end, or a broken pipe: the other side is no use any more
        finally:
            self._end()

    async def ask(self, call: str, **values: Any) -> Any:
        """What the other side's handler gives. Raises LaunchError where it fails or is gone."""
        if self._writer.is_closing():
            raise _gone(call)
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": number, "call": call, "with": values})
            return await answer
        finally:
            self._waiting.pop(number, None)

    def _hear(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # something else that the child printed
        if not isinstance(message, dict) or "id" not in message:
            return
        if "call" in message:
            task = asyncio.create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return
        if "fails" in message:
            answer.set_exception(LaunchError(message["fails"], where="worker"))
        else:
            answer.set_result(message["gives"])

    async def _answer(self, message: Mapping[str, Any]) -> None:
        try:
            gives = await self._handlers[message["call"]](message["with"])
            self._send({"id": message["id"], "gives": gives})
        except Exception as error:  # whatever it is, the one who asked must know
            self._send({"id": message["id"], "fails": f"{message['call']}: {error}"})

    def _send(self, message: Mapping[str, Any]) -> None:
        with suppress(ConnectionError, RuntimeError):  # `run` notices that nobody listens
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _end(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_gone("a call"))
        self._waiting.clear()
        for task in self._answering:
            task.cancel()
        self._writer.close()


def _gone(call: str) -> LaunchError:
    return LaunchError(f"{call} cannot be answered: the process is gone", where="worker")


async def with_parent(handlers: Mapping[str, Handler]) -> Calls:
    """In a child: calls over its own standard input and output."""
    import sys

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout
    )
    return Calls(reader, asyncio.StreamWriter(transport, protocol, reader, loop), handlers)
