"""The front's end of the socket pair: requests go to the engine, outputs find their way back.

`EngineLink` is an asyncio protocol: nothing here waits for the engine. Messages that the
handlers leave within one turn of the event loop go out as one frame.
"""

import asyncio
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

import msgspec

from ridgeline.errors import LaunchError
from ridgeline.launch.start_clock import process_began_s
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    Failed,
    FromEngine,
    Output,
    Stage,
    Started,
    Stats,
    Stepped,
    Stop,
    ToEngine,
)
from ridgeline.serving.engine.process import Frames, Order, engine_main, frame
from ridgeline.serving.openai import ApiError
from ridgeline.serving.usage_log import Entry, UsageLog

#: The engine that replicas run, as `process.engine_main` names it.
ENGINE = "ridgeline.serving.engine.loop:Engine"


class Generation:
    """The outputs of one HTTP request, which may be several requests to the engine.

    Its choices are numbered over all of them: prompt 0's `n` continuations first. `entry` is its
    record in the replica's usage log, where there is one.
    """

    def __init__(self, adds: list[Add], entry: Entry | None = None) -> None:
        assert adds, "a request has at least one prompt"
        self.adds = adds
        self.entry = entry
        self.choices = sum(add.n for add in adds)
        self._arrived: list[tuple[int, Output]] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: ApiError | None = None

    async def arrivals(self) -> list[tuple[int, Output]]:
        """The outputs since the last call, at least one, each with its choice's number.

        Raises ApiError when there will be no more.
        """
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        arrived, self._arrived = self._arrived, []
        return arrived

    def deliver(self, choice: int, output: Output) -> None:
        """Called by the link: one output for one choice."""
        self._arrived.append((choice, output))
        self._wake()

    def fail(self, error: ApiError) -> None:
        """Called by the link: nothing more will come, and why."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Route:
    """Where the outputs of one engine request belong, and which of its choices still run."""

    __slots__ = ("first_choice", "generation", "live")

    def __init__(self, generation: Generation, first_choice: int, n: int) -> None:
        self.generation = generation
        self.first_choice = first_choice
        self.live = set(range(n))


class EngineLink(asyncio.Protocol):
    """Owns the connection to one engine process. Use it from the event loop only.

    `begun` hears of each stage of the engine's start. `started` has what it said after that, or
    None if it died before. `lost` is set when the engine is gone. `stats` is what the last step
    said. In `log` each step's tokens are counted before any handler can send them.
    """

    def __init__(
        self, log: UsageLog | None = None, begun: Callable[[Stage], None] = lambda _: None
    ) -> None:
        self._log = log
        self._begun = begun
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.started: asyncio.Future[Started | Failed | None] = loop.create_future()
        self.lost = asyncio.Event()
        self.stats = Stats()
        self._transport: asyncio.Transport | None = None
        self._routes: dict[str, _Route] = {}
        self._outgoing: list[ToEngine] = []
        self._frames = Frames()
        self._decode = msgspec.msgpack.Decoder(FromEngine).decode
        self._encode = msgspec.msgpack.Encoder().encode

    @property
    def requests(self) -> int:
        """How many engine requests are open."""
        return len(self._routes)

    def ask(self, generation: Generation) -> None:
        """Send a generation's requests. Raises ApiError when nobody is there to answer."""
        if self.lost.is_set():
            self.close(generation)
            raise engine_lost()
        first_choice = 0
        for add in generation.adds:
            self._routes[add.id] = _Route(generation, first_choice, add.n)
            first_choice += add.n
            self._send(add)

    def end_choice(self, generation: Generation, choice: int) -> None:
        """One choice needs no more tokens, since it met a stop string."""
        for add in generation.adds:
            if choice < add.n:
                route = self._routes.get(add.id)
                if route is not None and choice in route.live:
                    self._close(add.id, route, choice)
                    self._send(Abort(add.id, choice))
                return
            choice -= add.n

    def close(self, generation: Generation) -> None:
        """Nobody waits any longer: whatever of it still runs is aborted, its count is final."""
        for add in generation.adds:
            if self._routes.pop(add.id, None) is not None:
                self._send(Abort(add.id))
        if self._log is not None and generation.entry is not None:
            self._log.end(generation.entry)

    def fail_all(self, error: ApiError) -> None:
        """Every open request ends with this error."""
        generations = {id(route.generation): route.generation for route in self._routes.values()}
        for generation in generations.values():
            self.close(generation)
            generation.fail(error)

    def stop(self) -> None:
        """Ask the engine to leave."""
        self._send(Stop())

    def hang_up(self) -> None:
        """Close our end, once what was said is sent; an engine that still runs ends with that."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The protocol's side of asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Frames from the engine."""
        for received in self._frames.feed(data):
            message = self._decode(received)
            if isinstance(message, Stepped):
                self._deliver(message)
            elif isinstance(message, Stage):
                self._begun(message)
            elif not self.started.done():
                self.started.set_result(message)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The engine is gone, for whatever reason: everyone who waits is told."""
        self._transport = None
        self.lost.set()
        if not self.started.done():
            self.started.set_result(None)
        self.fail_all(engine_lost())

    def _deliver(self, stepped: Stepped) -> None:
        self.stats = stepped.stats
        counted: dict[int, Entry] = {}
        for output in stepped.outputs:
            route = self._routes.get(output.id)
            # An output may be under way while its abort is; it belongs to nobody then.
            if route is None or output.index not in route.live:
                continue
            route.generation.deliver(route.first_choice + output.index, output)
            if (entry := route.generation.entry) is not None:
                entry.completion_tokens += len(output.tokens)
                entry.cached_tokens += output.cached_tokens
                counted[entry.serial] = entry
            if output.finish is not None:
                self._close(output.id, route, output.index)
        if self._log is not None and counted:
            self._log.write(counted.values())  # who was delivered to runs only after this

    def _close(self, request: str, route: _Route, index: int) -> None:
        route.live.discard(index)
        if not route.live:
            del self._routes[request]

    def _send(self, message: ToEngine) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(message)

    def _flush(self) -> None:
        messages, self._outgoing = self._outgoing, []
        if messages and self._transport is not None:
            self._transport.write(frame(self._encode(messages)))


class EngineProcess:
    """The engine's process as its front sees it.

    `before_s` is what passed in this process, of the start, before the engine's own part of it.
    """

    def __init__(
        self, config: EngineConfig | None, make_engine: str, environment: Mapping[str, str]
    ) -> None:
        """Start it, with `environment` added to ours.

        Without a config it imports all that it needs, and waits for `configure`.
        """
        self._ours, theirs = socket.socketpair()
        spawn = multiprocessing.get_context("spawn")
        self._orders, orders = spawn.Pipe()
        with theirs, orders, _environment(environment):
            process = spawn.Process(
                target=engine_main,
                args=(theirs, config or orders, make_engine),
                name="ridgeline-engine",
                daemon=True,
            )
            process.start()
        self._process: BaseProcess = process
        assert process.pid is not None, "it was started"
        self.before_s = process_began_s(process.pid) - process_began_s(os.getpid())

    def wait_for_imports(self) -> None:
        """Until one without a config waits for it. Raises EOFError where it died before."""
        self._orders.recv()

    def configure(self, config: EngineConfig, log: Path, since_s: float) -> None:
        """One that waits starts now; `log` is its standard error, `since_s` when we were told."""
        self._orders.send(Order(config, log))
        self.before_s = time.monotonic() - since_s

    async def connect(
        self, log: UsageLog | None = None, begun: Callable[[Stage], None] = lambda _: None
    ) -> EngineLink:
        """The link to it. Call once."""
        loop = asyncio.get_running_loop()

        def link() -> EngineLink:
            return EngineLink(log, begun)

        if self._ours.family == socket.AF_INET:  # Windows has no other kind of pair
            return (await loop.create_connection(link, sock=self._ours))[1]
        return (await loop.create_unix_connection(link, sock=self._ours))[1]

    async def end(self, within_s: float) -> None:
        """Wait until it has left, and end it by force where it has not in time."""
        await asyncio.to_thread(self._process.join, within_s)
        if self._process.exitcode is None:
            self._process.kill()
            await asyncio.to_thread(self._process.join)

    def death(self) -> LaunchError:
        """The error that says how it ended. Call after `end`."""
        code = self._process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return LaunchError(
            f"the engine process died ({how})",
            where="engine",
            remedy="read the lines above this one; signal 9 often means that memory ran out",
        )


def engine_lost() -> ApiError:
    """The answer to everyone who waits when the engine process dies."""
    return ApiError(
        503,
        "The engine of this replica has died; the answer is incomplete. Send the request again.",
        code="engine_dead",
        headers={"Retry-After": "1"},
    )


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """`os.environ` with `added`, for the start of a child: multiprocessing has no other way."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
