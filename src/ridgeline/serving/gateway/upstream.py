"""One call to a replica: the connection, its deadlines, and what can go wrong, told apart.

`RetryableError` was raised before the first byte of an answer, so another replica may be asked;
`BrokenError` after it, so the client must be told. Called by `proxy`.
"""

import asyncio
import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from multidict import CIMultiDict

from ridgeline.serving.gateway.config import Timeouts
from ridgeline.serving.gateway.fleet import LiveReplica
from ridgeline.serving.openai import ApiError

# An idle connection is given up before the replica does (uvicorn: after 5 s), else a request
# could be sent into a connection that is being closed.
KEEPALIVE_S = 4.0
MOST_ANSWER_BYTES = 64 * 1024 * 1024
DRAIN_S = 0.5
_LARGE_BYTES = 1024 * 1024

# Concern one connection only (RFC 9110, section 7.6.1), or are ours to say.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    }
)
# The client's body was decompressed on its way in, and its key and cookies are for us alone.
_NOT_SENT = _HOP_BY_HOP | {
    "accept-encoding",
    "authorization",
    "content-encoding",
    "cookie",
    "expect",
    "host",
    "x-request-id",
}
_NOT_RETURNED = _HOP_BY_HOP | {"date", "server", "set-cookie", "x-request-id"}


class RetryableError(Exception):
    """The replica was not there for this request. `stale`: a kept connection may have been old."""

    def __init__(self, problem: str, *, stale: bool) -> None:
        super().__init__(problem)
        self.stale = stale


class BrokenError(ApiError):
    """The replica has the request, but no whole answer came; the client is told 502 or 504."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(status, f"{problem[0].upper()}{problem[1:]}.", code="upstream_failed")


class Upstream:
    """How replicas are called; `open` before the first call, `close` after the last."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._session: ClientSession | None = None

    def open(self) -> ClientSession:
        """The pool of connections to all replicas; bounded by requests, not by the pool."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
            skip_auto_headers=("User-Agent",),
        )
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def send(
        self, replica: LiveReplica, path: str, body: bytes, headers: Mapping[str, str]
    ) -> "Answer":
        """Send a request and wait for the header of its answer, which the caller must close.

        Raises RetryableError, or BrokenError 504 where the replica has it and does not answer.
        """
        timeouts = self.timeouts
        assert self._session is not None, "opened before the first call"
        try:
            async with asyncio.timeout(timeouts.first_byte_s):
                response = await self._session.post(
                    replica.address.root + path,
                    # aiohttp sends large bytes in one go; from a file it lets others run too
                    data=io.BytesIO(body) if len(body) > _LARGE_BYTES else body,
                    headers=headers,
                    timeout=ClientTimeout(total=None, sock_connect=timeouts.connect_s),
                    allow_redirects=False,
                )
        except (ClientConnectorError, ConnectionTimeoutError) as error:
            raise RetryableError(f"replica {replica.id} cannot be reached", stale=False) from error
        except (ClientError, ConnectionError) as error:
            raise RetryableError(
                f"replica {replica.id} closed the connection", stale=True
            ) from error
        except TimeoutError:
            raise BrokenError(504, _silent(replica, timeouts.first_byte_s)) from None
        return Answer(replica, response, timeouts)


@dataclass(slots=True)
class Answer:
    """A replica's answer, of which the header is here and the body is on its way."""

    replica: LiveReplica
    response: ClientResponse
    timeouts: Timeouts
    begun: bool = False

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    @property
    def is_event_stream(self) -> bool:
        """Whether server-sent events follow."""
        return self.response.content_type == "text/event-stream"

    def headers(self) -> CIMultiDict[str]:
        """Its header, without what concerns only the connection to the replica."""
        kept = CIMultiDict[str]()
        for name, value in self.response.headers.items():
            if name.lower() not in _NOT_RETURNED:
                kept.add(name, value)
        return kept

    async def piece(self) -> bytes:
        """The next bytes as they come; empty at the end.

        Raises BrokenError 502 where the connection dies (before the first byte RetryableError),
        504 where nothing comes in time.
        """
        within_s = self.timeouts.idle_s if self.begun else self.timeouts.first_byte_s
        try:
            async with asyncio.timeout(within_s):
                piece = await self.response.content.readany()
        except (ClientError, ConnectionError) as error:
            problem = f"replica {self.replica.id} died during its answer"
            if not self.begun:
                raise RetryableError(problem, stale=False) from error
            raise BrokenError(502, problem) from error
        except TimeoutError:
            raise BrokenError(504, _silent(self.replica, within_s)) from None
        self.begun = True
        return piece

    async def whole(self) -> bytes:
        """The body to its end, BrokenError 502 above `MOST_ANSWER_BYTES`."""
        pieces, size = [], 0
        while piece := await self.piece():
            pieces.append(piece)
            size += len(piece)
            if size > MOST_ANSWER_BYTES:
                raise BrokenError(502, f"replica {self.replica.id} answers with too many bytes")
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read what little may follow the end of the stream, so that the connection is kept."""
        with suppress(ClientError, ConnectionError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while await self.response.content.readany():
                    pass

    def close(self) -> None:
        """End the call: a connection whose answer is not whole is closed, and so cancelled."""
        self.response.close()


def sent_headers(
    received: Mapping[str, str], replica: LiveReplica, request_id: str
) -> dict[str, str]:
    """The client's header for the replica. Its key was for us and is never passed on."""
    kept = {name: value for name, value in received.items() if name.lower() not in _NOT_SENT}
    kept["X-Request-Id"] = request_id
    if replica.address.api_key is not None:
        kept["Authorization"] = f"Bearer {replica.address.api_key}"
    return kept


def _silent(replica: LiveReplica, for_s: float) -> str:
    return f"replica {replica.id} sent nothing for {for_s:g} s"
