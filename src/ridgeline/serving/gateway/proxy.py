"""A request on its way: read, routed, sent, sent again where that is safe, and answered.

Called by `app` for the two generating endpoints. The order of what is written down is the law
here: a request is counted at its replica before anything is awaited, and counted off again
however it ends.
"""

import asyncio
import re
import time
import uuid
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web

from ridgeline.serving.gateway.calls import Call, peek, with_model, with_usage
from ridgeline.serving.gateway.config import GatewayConfig
from ridgeline.serving.gateway.fleet import Fleet, LiveReplica
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.record import CANCELLED, Exchange, Record
from ridgeline.serving.gateway.sse import EventStream, TooLongEventError, usage_of
from ridgeline.serving.gateway.upstream import (
    Answer,
    BrokenError,
    RetryableError,
    Upstream,
    sent_headers,
)
from ridgeline.serving.http_guard import error_response, read_body
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.health import Sign
from ridgeline.serving.policy.route import RetryBudget

Response = TypeVar("Response", bound=web.StreamResponse)

_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")  # a request id that we take over
_NO_STREAM_OPTIONS = re.compile(rb"stream_options|include_usage")


@dataclass(slots=True)
class Proxy:
    """All requests that generate."""

    config: GatewayConfig
    fleet: Fleet
    upstream: Upstream
    record: Record
    metrics: Metrics
    budget: RetryBudget

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """From the request to the end of its answer, whatever happens."""
        exchange = Exchange(request_id(request), request.path, time.monotonic_ns(), time.time())
        self.record.in_flight += 1
        try:
            return await self._answer(request, exchange)
        except ApiError as error:
            exchange.failed(int(error.status), error.message)
            return with_id(error_response(error), exchange)
        except (asyncio.CancelledError, ConnectionError):
            if not exchange.ended_ns:
                exchange.failed(CANCELLED, "the client left")
            raise
        finally:
            exchange.ended_ns = exchange.ended_ns or time.monotonic_ns()
            self.record.in_flight -= 1
            self.record.finished(exchange)
            self.metrics.finished(exchange)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """What generates nothing (/tokenize) goes the same way, but is no request in the record."""
        exchange = Exchange(request_id(request), request.path, time.monotonic_ns(), time.time())
        try:
            return await self._answer(request, exchange)
        except ApiError as error:
            return with_id(error_response(error), exchange)

    async def _answer(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        body = await read_body(request, self.config.most_body_bytes, self.config.patience.body_s)
        call = peek(body)
        exchange.stream = bool(call.stream)
        exchange.model = call.model if self.fleet.knows(call.model) else ""
        self.budget = self.budget.earn()
        tried: frozenset[str] = frozenset()
        failure: RetryableError | BusyError | None = None
        while (replica := self._next(call.model, tried, exchange, failure)) is not None:
            try:
                return await self._attempt(request, body, call, replica, exchange)
            except RetryableError as error:
                # A kept connection may just have been old: its replica gets a second chance.
                if failure is not None or not error.stale:
                    self.fleet.saw(replica, Sign.REFUSED)
                    tried |= {replica.id}
                failure = error
            except BusyError as error:
                tried |= {replica.id}
                failure = error
            finally:
                replica.gave_back()
        assert failure is not None, "where nobody could be chosen at first, `choose` has raised"
        return _last_word(failure, exchange)

    def _next(
        self,
        model: str,
        tried: frozenset[str],
        exchange: Exchange,
        failure: "RetryableError | BusyError | None",
    ) -> LiveReplica | None:
        """Who is asked now, already counted there; None where it must end with the failure."""
        left = self.budget
        if failure is not None:
            after = left.spend()
            if after is None or exchange.retries >= self.config.retries:
                return None
            left = after
        replica = self.fleet.choose(model, tried)
        if replica is not None:
            exchange.replica = replica.id
            exchange.retries += failure is not None
            self.budget = left
        return replica

    async def _attempt(
        self,
        request: web.Request,
        body: bytes,
        call: Call,
        replica: LiveReplica,
        exchange: Exchange,
    ) -> web.StreamResponse:
        """Ask one replica. Raises RetryableError or BusyError where another may still be asked."""
        theirs = replica.names.get(call.model, call.model)
        if theirs != call.model:
            body = with_model(body, theirs)
        headers = sent_headers(request.headers, replica, exchange.id)
        asks = bool(call.stream) and not call.wants_usage and replica.takes_usage_option
        path = request.path_qs
        answer = await self.upstream.send(
            replica, path, with_usage(body) if asks else body, headers
        )
        try:
            if asks and answer.status in (400, 422):
                refusal = await answer.whole()
                if not _NO_STREAM_OPTIONS.search(refusal):
                    return self._whole(answer, refusal, exchange)
                answer.close()
                answer = await self.upstream.send(replica, path, body, headers)
                # Only where the same request is taken without it was the option at fault.
                replica.takes_usage_option = answer.status >= 400
            self.fleet.saw(replica, Sign.ANSWERED)
            if answer.is_event_stream:
                return await self._stream(request, answer, exchange, hide_usage=asks)
            return self._whole(answer, await answer.whole(), exchange)
        finally:
            answer.close()

    def _whole(self, answer: Answer, body: bytes, exchange: Exchange) -> web.Response:
        """An answer that came in one piece, passed on as it is. Raises BusyError on a 503."""
        response = web.Response(status=answer.status, body=body, headers=answer.headers())
        if answer.status >= 400:
            exchange.failed(answer.status, _message(body))
        else:
            exchange.answered(answer.status)
            exchange.usage = usage_of(body)
        with_id(response, exchange)
        if answer.status == 503:
            raise BusyError(response)
        return response

    async def _stream(
        self, request: web.Request, answer: Answer, exchange: Exchange, *, hide_usage: bool
    ) -> web.StreamResponse:
        """An event stream, passed on as it comes. It ends with [DONE] or an error event."""
        piece = await answer.piece()
        if not piece:
            raise RetryableError(f"replica {answer.replica.id} sent an empty stream", stale=False)
        events = EventStream(hide_usage)
        response = web.StreamResponse(status=answer.status, headers=answer.headers())
        exchange.answered(answer.status)
        await with_id(response, exchange).prepare(request)
        problem = await self._relay(piece, events, answer, response, exchange)
        exchange.usage = events.usage
        if events.error:
            exchange.failed(502, _message(events.error))
        if problem is not None:
            exchange.failed(int(problem.status), problem.message)
            await response.write(b"data: " + msgspec.json.encode(problem.body()) + b"\n\n")
        await response.write_eof()
        exchange.ended_ns = time.monotonic_ns()  # a client that leaves from here on has it all
        if events.ended:
            await answer.drain()
        return response

    async def _relay(
        self,
        piece: bytes,
        events: EventStream,
        answer: Answer,
        response: web.StreamResponse,
        exchange: Exchange,
    ) -> ApiError | None:
        """Pass on piece after piece; what the client must be told where the end is missing."""
        try:
            while piece and not events.ended:
                passed = self._read(piece, events, exchange)
                if passed:
                    await response.write(passed)  # waits while the client does not read
                if not events.ended:
                    piece = await answer.piece()
        except BrokenError as broken:
            return broken
        except TooLongEventError as error:
            return BrokenError(502, f"replica {answer.replica.id} sent {error}")
        finally:
            exchange.usage = events.usage  # also where the client leaves
        if events.ended:
            return None
        return BrokenError(502, f"replica {answer.replica.id} ended its answer too early")

    def _read(self, piece: bytes, events: EventStream, exchange: Exchange) -> bytes:
        """The events of a piece, counted on their way."""
        before = events.contents
        passed = events.feed(piece)
        new = events.contents - before
        if new:
            now_ns = time.monotonic_ns()
            self.record.streamed(new, now_ns)
            gap_ns = exchange.said(new, now_ns)
            if gap_ns:
                self.metrics.gap(exchange.model, gap_ns)
        return passed


class BusyError(Exception):
    """A replica answered 503: somebody else may take the request, else this is the answer."""

    def __init__(self, answer: web.Response) -> None:
        super().__init__("busy")
        self.answer = answer


class _Error(msgspec.Struct):
    message: str = ""


class _Failure(msgspec.Struct):
    error: _Error | str | None = None
    message: str = ""
    detail: str = ""


def request_id(request: web.Request) -> str:
    """The client's own id where it is printable and short, else a new one."""
    given = request.headers.get("X-Request-Id", "")
    return given if _GOOD_ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"


def with_id(response: Response, exchange: Exchange) -> Response:
    """The response, saying which request it answers and who answered."""
    response.headers["X-Request-Id"] = exchange.id
    if exchange.replica:
        response.headers["X-Ridgeline-Replica"] = exchange.replica
    return response


def _last_word(failure: RetryableError | BusyError, exchange: Exchange) -> web.Response:
    if isinstance(failure, BusyError):
        return with_id(failure.answer, exchange)
    raise BrokenError(502, str(failure)) from failure


def _message(body: bytes) -> str:
    """What an error body says, for our record only: the client gets it untouched."""
    try:
        failure = msgspec.json.decode(body, type=_Failure)
    except (msgspec.DecodeError, RecursionError):
        return body[:300].decode(errors="replace")
    error = failure.error.message if isinstance(failure.error, _Error) else failure.error
    return error or failure.message or failure.detail or "no message"
