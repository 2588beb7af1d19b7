"""The engine process: it waits for messages, steps while there is work, and says what happened.

The HTTP front (`link.EngineLink`) starts it and holds the other end of a socket pair. A frame is
four bytes of length (big-endian), then MessagePack; one frame a step goes each way:

    front ──[Add, Abort, ...]──▶ engine        everything the front has gathered since the last
    front ◀──────Stepped──────── engine        everything that one step produced

While nothing runs the process sleeps in the kernel. It ends with its front: when the socket
closes, when it reads `Stop`, or, in the middle of a long step, when the front's process is gone.
"""

import gc
import importlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol, cast

import msgspec

from ridgeline.errors import RidgelineError
from ridgeline.launch.start_clock import StartClock, process_began_s
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    Failed,
    FromEngine,
    Stage,
    Started,
    Stepped,
    Stop,
    ToEngine,
)
from ridgeline.serving.engine.read_ahead import read_ahead

_RECEIVE_BYTES = 1 << 20
_LENGTH_BYTES = 4


class Engine(Protocol):
    """What `engine_main` drives: `loop.Engine`, or a stand-in in tests."""

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""

    def started(self) -> Started:
        """What was loaded, after a first real token."""

    def add(self, add: Add) -> None:
        """Take a request."""

    def abort(self, abort: Abort) -> None:
        """Drop a request."""

    def step(self) -> Stepped:
        """Run one step."""


class MakeEngine(Protocol):
    """A class or function that makes an engine; it raises RidgelineError where it cannot."""

    def __call__(self, config: EngineConfig, clock: StartClock) -> Engine:
        """Load everything; `clock` is told of each stage after the first, "weights"."""


class Frames:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, in order."""
        self._bytes += data
        frames = []
        start = 0
        while len(self._bytes) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(self._bytes[start:body], "big")
            if end > len(self._bytes):
                break
            frames.append(bytes(self._bytes[body:end]))
            start = end
        del self._bytes[:start]
        return frames


def frame(message: bytes) -> bytes:
    """A message with its length before it."""
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


class Channel:
    """The engine's end of the socket pair: blocking, one message list in, one message out."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = Frames()
        self._decode = msgspec.msgpack.Decoder(list[ToEngine]).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def receive(self, *, wait: bool) -> list[ToEngine]:
        """All messages that are there; with `wait`, sleeps until there is one.

        Raises EOFError when the front is gone.
        """
        messages: list[ToEngine] = []
        while self._readable(wait=wait and not messages):
            data = self._connection.recv(_RECEIVE_BYTES)
            if not data:
                raise EOFError("the front closed its end")
            for received in self._frames.feed(data):
                messages += self._decode(received)
        return messages

    def send(self, message: FromEngine) -> None:
        """One message to the front; waits where the front is behind."""
        self._connection.sendall(frame(self._encode(message)))

    def _readable(self, *, wait: bool) -> bool:
        return bool(select.select([self._connection], [], [], None if wait else 0)[0])


@dataclass(frozen=True, slots=True)
class Order:
    """What an engine that has only imported is told to become, and where it writes errors."""

    config: EngineConfig
    log: Path


def engine_main(
    connection: socket.socket, config: EngineConfig | Connection, make_engine: str
) -> None:
    """The process's whole life. `make_engine` is "package.module:name" of a `MakeEngine`.

    With a Connection in place of a config it imports, says so there, and waits for its `Order`.
    """
    _leave_signals_to_the_front()
    _end_with_the_front()
    channel = Channel(connection)
    try:
        engine = _start(channel, config, make_engine)
        # What is loaded stays: no collection between steps has to look at it again.
        gc.collect()
        gc.freeze()
        run(engine, channel)
    except (EOFError, ConnectionError):
        return  # the front is gone, and with it everyone who waits for an answer


def run(engine: Engine, channel: Channel) -> None:
    """Messages in, a step, its outcome out, until `Stop`.

    Raises EOFError or ConnectionError when the front is gone.
    """
    while True:
        messages = channel.receive(wait=not engine.busy)
        if _take(engine, messages):
            return
        # After an abort, perhaps the last of what ran, the front has to see fresh gauges.
        if engine.busy or any(isinstance(message, Abort) for message in messages):
            channel.send(engine.step())


def _take(engine: Engine, messages: list[ToEngine]) -> bool:
    """Give the engine its messages; True when it has to stop."""
    for message in messages:
        match message:
            case Add():
                engine.add(message)
            case Abort():
                engine.abort(message)
            case Stop():
                return True
    return False


def _start(channel: Channel, config: EngineConfig | Connection, make_engine: str) -> Engine:
    """An engine that has generated its first token; a failure is told to the front."""

    def turn(stage: str, ended: str, spent_s: float) -> None:
        channel.send(Stage(stage, ended, spent_s))

    if isinstance(config, EngineConfig):
        clock = StartClock(process_began_s(os.getpid()), turn)
        clock.begin("import")
        read_ahead(config)
        make = _imported(make_engine)
    else:
        make = _imported(make_engine)
        config = _ordered(config)
        clock = StartClock(time.monotonic(), turn)
        read_ahead(config)
    clock.begin("weights")
    try:
        engine = make(config, clock)
        started = engine.started()
    except RidgelineError as error:
        channel.send(Failed(error.problem, error.where, error.remedy))
        sys.exit(2)
    # The engine knows what it loaded, the clock what came before.
    stages_s = {**clock.spent_s, **started.stages_s}
    channel.send(msgspec.structs.replace(started, stages_s=stages_s))
    return engine


def _imported(make_engine: str) -> MakeEngine:
    module, _, name = make_engine.partition(":")
    return cast("MakeEngine", getattr(importlib.import_module(module), name))


def _ordered(orders: Connection) -> EngineConfig:
    """Wait to be told what to become. Raises EOFError where the front is gone."""
    orders.send("imported")
    order = cast("Order", orders.recv())
    write_errors_to(order.log)
    return order.config


def write_errors_to(log: Path) -> None:
    """From now on this process's standard error goes to the end of that file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def _leave_signals_to_the_front() -> None:
    """Ctrl-C and SIGTERM may reach the whole group, but draining needs the engine to go on."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _end_with_the_front() -> None:
    """No step and no loading outlives the front by more than an instant, kill -9 included."""
    front = multiprocessing.parent_process()
    if front is None:
        return

    def watch() -> None:
        front.join()
        os._exit(1)

    threading.Thread(target=watch, name="front-watch", daemon=True).start()
