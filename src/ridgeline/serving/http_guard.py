"""An aiohttp application on a listening socket, guarded against clients that stall.

The gateway and Ridgeline's own replicas both listen through this room. aiohttp closes idle
connections, but has no deadline of its own for a half-sent header, and none for a client that
stops reading its answer; both pin memory and a socket for as long as the client likes. A thin
asyncio protocol in front of aiohttp's watches for them and uses only what asyncio makes public:

    socket ── _Connection (deadlines) ── aiohttp's protocol (HTTP) ── middleware ── handler
                 ▲ bytes arrive                                            │
                 └──────────── "a handler runs": no header is due ─────────┘
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

from ridgeline.errors import LaunchError
from ridgeline.serving.openai import ApiError

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

_LOG = logging.getLogger(__name__)
# Whoever sends what is no HTTP has their 400; a traceback for each would let them fill the disk.
_LOG.addFilter(lambda record: not _is_bad_http(record))


def _is_bad_http(record: logging.LogRecord) -> bool:
    return record.exc_info is not None and isinstance(record.exc_info[1], HttpProcessingError)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may take, in seconds.

    `header_s` from the first byte of a request to the end of its header; `body_s` for the whole
    body (`read_body`); `stall_s` while it takes nothing of an answer that waits for it; `idle_s`
    between requests, and from connecting to the first byte.
    """

    header_s: float = 10.0
    body_s: float = 60.0
    stall_s: float = 30.0
    idle_s: float = 75.0


class GuardedServer:
    """One application on one listening socket.

    A handler is cancelled (`asyncio.CancelledError`) as soon as its client has gone.
    """

    def __init__(self, app: web.Application, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._connections: dict[RequestHandler, _Connection] = {}
        self._listener: asyncio.Server | None = None
        self._handling = 0
        self._stopping = self._draining = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        app.middlewares.insert(0, self._while_handled())
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_LOG,
            handler_cancellation=True,
            keepalive_timeout=self._patience.idle_s,
            lingering_time=2.0,  # an unread body is drained this long, so that the answer arrives
            shutdown_timeout=1.0,  # what still runs when stop() gets there was cut already
        )

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._connections)

    @property
    def handling(self) -> int:
        """How many requests are being answered now."""
        return self._handling

    async def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listen, and give the port (port 0 asks the system for a free one).

        Several processes may listen on a `shared` port: each connection goes to one of them.

        Raises OSError if the address cannot be had.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            self._accept, host, port, backlog=1024, reuse_port=shared or None
        )
        return int(self._listener.sockets[0].getsockname()[1])

    async def listen(self, host: str, port: int) -> str:
        """Listen where the command line said, and give the URL. Raises LaunchError."""
        try:
            return http_url(host, await self.start(host, port))
        except OSError as error:
            raise LaunchError(
                f"cannot listen: {error.strerror}",
                where=f"{host}:{port}",
                remedy="another --port, or 0 for a free one",
            ) from error

    async def drain(self, grace_s: float) -> bool:
        """Refuse every new POST with a 503, and say whether what runs ended within `grace_s`.

        Reads (health, metrics, pages) are still answered, and new connections still taken.
        """
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._quiet.wait()
        return self._quiet.is_set()

    async def stop(self, grace_s: float = 30.0) -> None:
        """Take nothing new, give what runs `grace_s` to end, then cut it."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._quiet.wait()
        for connection in [c for c in self._connections.values() if c.handling]:
            connection.cut()
        await self._runner.cleanup()

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None, "start() sets the runner up before it listens"
        return _Connection(server(), self._patience, self._connections)

    def _while_handled(self) -> Middleware:
        @web.middleware
        async def while_handled(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._connections.get(request.protocol)
            if connection is None:
                return web.Response()  # the client left before its handler could start
            if self._stopping or (self._draining and request.method == "POST"):
                return _shutting_down()
            self._handling += 1
            self._quiet.clear()
            connection.handler_started()
            try:
                return await handler(request)
            except ConnectionError:
                if connection.open:
                    raise
                return web.Response()  # to nobody: aiohttp ends quietly, without a traceback
            finally:
                connection.handler_ended()
                self._handling -= 1
                if not self._handling:
                    self._quiet.set()

        return while_handled


class _Connection(asyncio.Protocol):
    """What passes between a socket and aiohttp's protocol, with the deadlines."""

    def __init__(
        self,
        inner: RequestHandler,
        patience: Patience,
        connections: "dict[RequestHandler, _Connection]",
    ) -> None:
        self.handling = False
        self._inner = inner
        self._patience = patience
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_header = False
        self._due: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections[self._inner] = self
        self._due = self._loop.call_later(self._patience.idle_s, self._too_slow)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.handling and not self._in_header:
            self._in_header = True
            self._clear_due()
            self._due = self._loop.call_later(self._patience.header_s, self._too_slow)
        self._inner.data_received(data)

    def handler_started(self) -> None:
        self.handling = True
        self._in_header = False
        self._clear_due()

    def handler_ended(self) -> None:
        self.handling = False  # from here to the next byte, aiohttp's keep-alive timer rules

    def pause_writing(self) -> None:
        self._stall = self._loop.call_later(self._patience.stall_s, self.cut)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._clear_stall()
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        self._inner.eof_received()
        return None  # a half-closed client is gone: close, which cancels its handler

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_due()
        self._clear_stall()
        self._connections.pop(self._inner, None)
        self._inner.connection_lost(exc)

    @property
    def open(self) -> bool:
        """Whether anything sent now can still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    def cut(self) -> None:
        """Close at once; what is not yet sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _too_slow(self) -> None:
        assert self._transport is not None, "timers run only while connected"
        if self._in_header and not self._transport.get_write_buffer_size():
            self._transport.write(_TOO_SLOW)
        self._transport.close()

    def _clear_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _clear_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


def http_url(host: str, port: int) -> str:
    """Where to reach a server; the address of IPv6 stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def read_body(request: web.Request, most_bytes: int, within_s: float) -> bytes:
    """The request's whole body, decompressed.

    Raises ApiError: 413 above `most_bytes` (refused unread where its length is announced), 408
    where it is not complete in `within_s`, 400 where its encoding is broken.
    """
    if (request.content_length or 0) > most_bytes:
        raise _too_large(most_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        if request.content.is_eof():  # most bodies came with their header: nothing to wait for
            whole = request.content.read_nowait()
            if len(whole) > most_bytes:
                raise _too_large(most_bytes)
            return whole
        async with asyncio.timeout(within_s):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise ApiError(408, f"The request body did not arrive within {within_s:g} s.") from None
    except web.RequestPayloadError as error:
        raise ApiError(400, f"The request body cannot be read: {error}.") from error
    return b"".join(chunks)


def error_response(error: ApiError) -> web.Response:
    """The error as an answer: OpenAI's JSON, its status and its headers."""
    return web.json_response(error.body(), status=int(error.status), headers=error.headers)


def _too_large(most_bytes: int) -> ApiError:
    return ApiError(
        413, f"The request body is larger than {most_bytes:,} bytes.", code="request_too_large"
    )


def _shutting_down() -> web.Response:
    response = error_response(
        ApiError(
            503,
            "This server is shutting down.",
            code="shutting_down",
            headers={"Retry-After": "1"},
        )
    )
    response.force_close()
    return response
