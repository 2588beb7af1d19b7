"""Connections to replicas: kept between requests, one answer at a time, read no faster than passed.

`upstream` is the caller. What goes wrong comes out as OSError (of them TimeoutError where nothing
came in time) or `NotHttpError`. A connection whose answer was not read to its end is cut, which is
how the replica learns that nobody waits any more.
"""

import asyncio
import functools
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote, urlsplit

from ridgeline.serving.gateway.http1 import AnswerReader, Incoming, NotHttpError

_BUFFER_BYTES = 64 * 1024  # of an answer that waits for its client; beyond that nothing is read
_WRITE_BYTES = 256 * 1024  # of a request at once, so that a large one does not hold up the others


class Connection(asyncio.Protocol):
    """One connection; `ask`, then `piece` until it is empty, then it may be used again."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._reader_failure: OSError | NotHttpError | None = None
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._paused_reading = self._paused_writing = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on it."""
        incoming = self._reader.incoming
        asked = incoming is None or (incoming.keeps and self._reader.clean and not self._pieces)
        return self._transport is not None and self._reader_failure is None and asked

    @property
    def ended(self) -> bool:
        """Whether the answer is here to its last byte."""
        return self._reader.ended

    async def ask(self, request: bytes, body: bytes, within_s: float) -> Incoming:
        """Send a request and wait for the header of its answer.

        Raises OSError or NotHttpError; TimeoutError where no header comes in time.
        """
        assert self._transport is not None, "taken from the pool while connected"
        self._reader = AnswerReader()
        until_s = self._loop.time() + within_s
        if len(body) <= _WRITE_BYTES:
            self._transport.write(request + body)
        else:
            await self._write_long(request, body, until_s)
        while (incoming := self._reader.incoming) is None:
            await self._wait(until_s - self._loop.time())
        return incoming

    async def _write_long(self, request: bytes, body: bytes, until_s: float) -> None:
        assert self._transport is not None
        self._transport.write(request)
        for begin in range(0, len(body), _WRITE_BYTES):
            while self._paused_writing and self._reader.incoming is None:
                await self._wait(until_s - self._loop.time())
            if self._reader.incoming is not None or self._transport is None:
                return  # answered without having read it all: a refusal
            self._transport.write(body[begin : begin + _WRITE_BYTES])
            await asyncio.sleep(0)

    async def piece(self, within_s: float) -> bytes:
        """What of the body is here, or the next bytes of it; empty at its end. Raises as `ask`."""
        while not self._pieces:
            if self._reader.ended:
                return b""
            await self._wait(within_s)
        pieces, self._pieces, self._held_bytes = self._pieces, [], 0
        if self._paused_reading and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def cut(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self, within_s: float) -> None:
        """Until anything has come or gone."""
        if self._reader_failure is not None:
            raise self._reader_failure
        self._waiter = waiter = self._loop.create_future()
        timer = self._loop.call_later(within_s, _expire, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer; where they are none of HTTP's, the connection is cut."""
        if self._reader_failure is not None:
            return
        try:
            piece = self._reader.feed(data)
        except NotHttpError as error:
            self._reader_failure = error
            self.cut()
        else:
            self._hold(piece)
        self._wake()

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > _BUFFER_BYTES and not self._paused_reading:
            assert self._transport is not None, "data comes only while connected"
            self._paused_reading = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: the end of some answers, a failure to others."""
        self._transport = None
        if not self._reader.feed_eof() and self._reader_failure is None:
            lost = exc if isinstance(exc, OSError) else None
            self._reader_failure = lost or ConnectionResetError("the replica closed it")
        self._wake()

    def pause_writing(self) -> None:
        """The replica reads slower than we write."""
        self._paused_writing = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused_writing = False
        self._wake()


def _expire(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class Pool:
    """Kept connections by address; bounded by requests, not here."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._idle: dict[str, list[Connection]] = {}
        self._all: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, root: str) -> Connection | None:
        """The connection that was used last, where one is open and young enough."""
        idle = self._idle.get(root)
        oldest_s = time.monotonic() - self._keep_s
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since_s > oldest_s:
                return connection
            self.drop(connection)
        return None

    async def open(self, root: str, within_s: float) -> Connection:
        """A new connection to `http(s)://host:port`. Raises OSError, TimeoutError among them."""
        if self._closed:
            raise ConnectionAbortedError("the gateway closes")
        to = address_of(root)
        async with asyncio.timeout(within_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, to.hostname, to.port, ssl=_tls() if to.secure else None
            )
        self._all.add(connection)
        return connection

    def give_back(self, root: str, connection: Connection) -> None:
        """Its answer is over, one way or the other: keep it where it can be used again."""
        if self._closed or not connection.usable or not connection.ended:
            self.drop(connection)
            return
        connection.idle_since_s = time.monotonic()
        self._idle.setdefault(root, []).append(connection)
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self._keep_s, self._drop_old)

    def drop(self, connection: Connection) -> None:
        """Let go of a connection for good."""
        self._all.discard(connection)
        connection.cut()

    async def close(self) -> None:
        """Cut every connection, also those that are being read."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._all):
            self.drop(connection)
        self._idle.clear()
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    def _drop_old(self) -> None:
        self._sweep = None
        oldest_s = time.monotonic() - self._keep_s
        for root, idle in list(self._idle.items()):
            young = [one for one in idle if one.usable and one.idle_since_s > oldest_s]
            for connection in set(idle).difference(young):
                self.drop(connection)
            if young:
                self._idle[root] = young
            else:
                del self._idle[root]
        if self._idle:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self._keep_s, self._drop_old)


@dataclass(frozen=True, slots=True)
class Address:
    """What a replica's root address says: where to connect, and what goes into each request."""

    hostname: str
    port: int
    secure: bool
    host: str  # as the Host field has it
    prefix: str  # of every path
    authorization: str  # from `user:password@`, else empty

    def request(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        """The header of a POST. ValueError where a field holds a line break."""
        fields = [f"{name}: {value}" for name, value in headers.items()]
        if self.authorization and "Authorization" not in headers:
            fields.append(f"Authorization: {self.authorization}")
        text = "".join(fields)
        if "\n" in text or "\r" in text or "\0" in text or not path.isascii() or " " in path:
            raise ValueError("a header field or the path cannot be sent")
        lines = [
            f"POST {self.prefix}{path} HTTP/1.1",
            f"Host: {self.host}",
            "Accept-Encoding: identity",
            f"Content-Length: {length}",
            *fields,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=4096)
def address_of(root: str) -> Address:
    """The parts of `http(s)://[user:password@]host[:port][/prefix]`."""
    parts = urlsplit(root)
    secure = parts.scheme == "https"
    given = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return Address(
        hostname=parts.hostname or "",
        port=parts.port or (443 if secure else 80),
        secure=secure,
        host=parts.netloc.rpartition("@")[2],
        prefix=parts.path.rstrip("/"),
        authorization="Basic " + b64encode(given.encode()).decode() if parts.username else "",
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()  # reads every root certificate: once is enough
