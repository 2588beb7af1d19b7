"""One call to a replica: the connection, its deadlines, and what can go wrong, told apart.

`RetryableError` was raised before the first byte of an answer, so another replica may be asked;
`BrokenError` after it, so the client must be told. Called by `proxy`.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import ClientSession, DummyCookieJar, TCPConnector
from multidict import CIMultiDict

from ridgeline.serving.gateway.config import Timeouts
from ridgeline.serving.gateway.connections import Connection, Pool, address_of
from ridgeline.serving.gateway.http1 import Incoming, NotHttpError
from ridgeline.serving.gateway.live_replica import LiveReplica
from ridgeline.serving.openai import ApiError

# An idle connection is given up before the replica does (uvicorn: after 5 s), else a request
# could be sent into a connection that is being closed.
KEEPALIVE_S = 4.0
MOST_ANSWER_BYTES = 64 * 1024 * 1024
DRAIN_S = 0.5

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
    "x-api-key",
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
        self._pool = Pool(KEEPALIVE_S)
        self.closed = False

    def open(self) -> ClientSession:
        """The session that looks at replicas. Requests go over connections of their own."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
            skip_auto_headers=("User-Agent",),
        )
        return self._session

    async def close(self) -> None:
        """Close every connection; answers that still come over one end there."""
        self.closed = True
        await self._pool.close()
        if self._session is not None:
            await self._session.close()

    async def send(
        self, replica: LiveReplica, path: str, body: bytes, headers: Mapping[str, str]
    ) -> "Answer":
        """Send a request and wait for the header of its answer, which the caller must close.

        Raises RetryableError, or BrokenError 504 where the replica has it and does not answer.
        """
        root, within_s = replica.address.root, self.timeouts.first_byte_s
        request = address_of(root).request(path, headers, len(body))
        connection = self._pool.take(root) or await self._connect(replica)
        try:
            incoming = await connection.ask(request, body, within_s)
        except TimeoutError:
            self._pool.drop(connection)
            raise BrokenError(504, _silent(replica, within_s)) from None
        except (OSError, NotHttpError) as error:
            self._pool.drop(connection)
            raise RetryableError(
                f"replica {replica.id} closed the connection", stale=True
            ) from error
        except BaseException:  # our own request was cancelled: so is the replica's work
            self._pool.drop(connection)
            raise
        return Answer(replica, connection, incoming, self._pool, self.timeouts)

    async def _connect(self, replica: LiveReplica) -> Connection:
        try:
            return await self._pool.open(replica.address.root, self.timeouts.connect_s)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name
            raise RetryableError(f"replica {replica.id} cannot be reached", stale=False) from error


@dataclass(slots=True)
class Answer:
    """A replica's answer, of which the header is here and the body is on its way."""

    replica: LiveReplica
    connection: Connection
    incoming: Incoming
    pool: Pool
    timeouts: Timeouts
    begun: bool = False
    closed: bool = False

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.incoming.status

    @property
    def is_event_stream(self) -> bool:
        """Whether server-sent events follow."""
        kind = self.incoming.headers.get("Content-Type", "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    def headers(self) -> CIMultiDict[str]:
        """Its header, without what concerns only the connection to the replica."""
        kept = CIMultiDict[str]()
        for name, value in self.incoming.headers.items():
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
            piece = await self.connection.piece(within_s)
        except TimeoutError:
            raise BrokenError(504, _silent(self.replica, within_s)) from None
        except (OSError, NotHttpError) as error:
            problem = f"replica {self.replica.id} died during its answer"
            if not self.begun:
                raise RetryableError(problem, stale=False) from error
            raise BrokenError(502, problem) from error
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
        until_s = time.monotonic() + DRAIN_S
        with suppress(OSError, NotHttpError):
            while await self.connection.piece(max(0.0, until_s - time.monotonic())):
                pass

    def close(self) -> None:
        """End the call: a connection whose answer is not whole is closed, and so cancelled."""
        if not self.closed:
            self.closed = True
            self.pool.give_back(self.replica.address.root, self.connection)


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
