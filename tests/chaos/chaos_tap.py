"""What an answer looked like on the wire, below the client library that reads it.

OpenAI's client stops at [DONE], and a body that just ends looks the same to its user. The tap reads
along: it knows who answered, whether [DONE] or an error event passed, and how the connection ended.
"""

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass

import httpx2

_TAIL_BYTES = 64


@dataclass(slots=True)
class Wire:
    """One answer as it came. `ended` says that its body came to its end, whatever that was."""

    request_id: str = ""
    replica: str = ""
    status: int = 0
    retry_after: str = ""
    done: bool = False
    error_event: bool = False
    ended: bool = False


#: The wire of the request that the current task makes.
WIRE: ContextVar[Wire] = ContextVar("wire")


class Tap(httpx2.AsyncBaseTransport):
    """Every request on a connection of its own, so that the system deals them to all workers."""

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._inner = httpx2.AsyncHTTPTransport(limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        wire = WIRE.get()
        response = await self._inner.handle_async_request(request)
        wire.status = response.status_code
        wire.request_id = response.headers.get("X-Request-Id", "")
        wire.replica = response.headers.get("X-Ridgeline-Replica", "")
        wire.retry_after = response.headers.get("Retry-After", "")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Tapped(response.stream, wire)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Tapped(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire
        self._tail = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            seen = self._tail + piece
            self._wire.done |= b"data: [DONE]" in seen
            self._wire.error_event |= b'data: {"error"' in seen
            self._tail = seen[-_TAIL_BYTES:]
            yield piece
        self._wire.ended = True

    async def aclose(self) -> None:
        await self._stream.aclose()
