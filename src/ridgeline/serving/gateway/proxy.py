"""A request on its way: let in, routed, sent, sent again where that is safe, and answered.

Called by `routes` for the endpoints that generate. The order of what is written down is the law
here: a request is counted at its replica before anything is awaited, and counted off again
however it ends. What it used is settled by `admission`, whatever happened.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import web

from ridgeline.serving.gateway.admission import Admission, Admitted
from ridgeline.serving.gateway.arms import Arms
from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.gateway.calls import peek, with_model, with_usage
from ridgeline.serving.gateway.config import GatewayConfig
from ridgeline.serving.gateway.dialects import DIALECTS, Dialect, Translation
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.ids import new_id
from ridgeline.serving.gateway.live_replica import Dispatch, Wanted
from ridgeline.serving.gateway.logs import RequestLog
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.prompt_blocks import PromptBlocks
from ridgeline.serving.gateway.record import Exchange, Record
from ridgeline.serving.gateway.refusals import message_of
from ridgeline.serving.gateway.relay import CutError, Relay
from ridgeline.serving.gateway.sse import EventStream, guessed_tokens, is_error, usage_of
from ridgeline.serving.gateway.tracing import NoTrace, Trace, Tracing
from ridgeline.serving.gateway.upstream import (
    Answer,
    BrokenError,
    RetryableError,
    Upstream,
    sent_headers,
)
from ridgeline.serving.http_guard import error_response, read_body
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.failures import Outcome, RetryBudget, of_status
from ridgeline.serving.policy.health import Sign

Response = TypeVar("Response", bound=web.StreamResponse)

#: Where `routes` puts who asks.
CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)

_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")  # a client's own id that we keep beside ours
_NO_STREAM_OPTIONS = re.compile(rb"stream_options|include_usage")


@dataclass(slots=True)
class Asked:
    """A request as it came: who asks, and in which API; `dialect` is None for OpenAI's own."""

    request: web.Request
    caller: Caller
    dialect: Dialect | None
    translation: Translation | None
    exchange: Exchange
    trace: Trace
    relay: Relay | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """What the client sent along."""
        return self.request.headers


@dataclass(slots=True)
class Proxy:
    """All requests that generate."""

    config: GatewayConfig
    fleet: Fleet
    upstream: Upstream
    admission: Admission
    record: Record
    metrics: Metrics
    log: RequestLog
    tracing: Tracing
    arms: Arms
    budget: RetryBudget
    #: Answers that only we still read.
    _reading: set[asyncio.Task[Any]] = field(default_factory=set)

    async def close(self) -> None:
        """Read no further."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """From the request to the end of its answer, whatever happens."""
        exchange = Exchange(
            new_id(), request.path, time.monotonic_ns(), time.time(), client_id=client_id(request)
        )
        trace = self.tracing.begin(request.headers, exchange.started_unix_s)
        dialect = DIALECTS.get(request.path)
        asked = Asked(request, request[CALLER], dialect, None, exchange, trace)
        self.record.in_flight += 1
        try:
            return await self._answer(asked)
        except ApiError as error:
            exchange.failed(int(error.status), error.message)
            return with_id(_refusal(error, dialect), exchange)
        except (asyncio.CancelledError, ConnectionError):
            exchange.abandoned()
            raise
        finally:
            exchange.ended_ns = exchange.ended_ns or time.monotonic_ns()
            self.record.in_flight -= 1
            self.record.finished(exchange)
            self.metrics.finished(exchange)
            self.arms.saw(exchange)
            trace.finished(exchange)
            self.log.finished(exchange)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """What generates nothing (/tokenize): routed, but neither counted, charged nor queued."""
        exchange = Exchange(
            new_id(), request.path, time.monotonic_ns(), time.time(), client_id=client_id(request)
        )
        dialect = DIALECTS.get(request.path)
        trace = NoTrace()
        asked = Asked(request, request[CALLER], dialect, None, exchange, trace)
        try:
            path, body = await self._read(asked)
            model = peek(body).model
            self.admission.must_serve(asked.caller, model)
            wanted = Wanted(model, PromptBlocks((), 0), 1)  # it leaves nothing in a cache
            return await self._attempts(asked, path, body, wanted, streams=False, hides=False)
        except ApiError as error:
            return with_id(_refusal(error, dialect), exchange)

    async def _answer(self, asked: Asked) -> web.StreamResponse:
        path, body = await self._read(asked)
        exchange = asked.exchange
        endpoint = path.partition("?")[0]  # what follows is the client's own text
        admitted = await self.admission.admit(exchange, asked.caller, endpoint, body, asked.headers)
        work = self._admitted(asked, path, admitted)
        if not admitted.must_be_read:
            return await work
        reading = asyncio.create_task(work)
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        return await asyncio.shield(reading)

    async def _admitted(self, asked: Asked, path: str, admitted: Admitted) -> web.StreamResponse:
        """To the end of an answer that has its place, and what it used is charged."""
        exchange = asked.exchange
        try:
            return await self._attempts(
                asked,
                path,
                admitted.body,
                admitted.wanted,
                streams=bool(admitted.call.stream),
                hides=not admitted.call.wants_usage,
                admitted=admitted,
            )
        except ApiError as error:
            exchange.failed(int(error.status), error.message)
            raise
        except (asyncio.CancelledError, ConnectionError):
            exchange.abandoned()
            raise
        finally:
            self.admission.ended(exchange, admitted)

    async def _read(self, asked: Asked) -> tuple[str, bytes]:
        """The path and body for a replica; another API's request is translated."""
        body = await read_body(
            asked.request, self.config.most_body_bytes, self.config.patience.body_s
        )
        if self.log.keeps_text:
            asked.exchange.asked, asked.exchange.told = body, bytearray()
        if asked.dialect is None:
            return asked.request.path_qs, body
        exchange = asked.exchange
        asked.translation = asked.dialect.request(
            body, request_id=exchange.id, now_s=exchange.started_unix_s
        )
        return asked.translation.path, asked.translation.body

    async def _attempts(
        self,
        asked: Asked,
        path: str,
        body: bytes,
        wanted: Wanted,
        *,
        streams: bool,
        hides: bool,
        admitted: Admitted | None = None,
    ) -> web.StreamResponse:
        """One replica after the other until one answers, as often as that is allowed."""
        exchange = asked.exchange
        self.budget = self.budget.earn()
        tried: frozenset[str] = frozenset()
        failure: RetryableError | BusyError | CutError | None = None
        while (dispatch := self._next(wanted, tried, exchange, failure)) is not None:
            attempt = Attempt(self, asked, dispatch, wanted.model, admitted, streams and hides)
            try:
                return await attempt.run(path, body)
            except CutError as error:
                exchange.failed_at(dispatch.replica.address.version)
                self.fleet.saw(dispatch.replica, Sign.REFUSED)
                tried |= {dispatch.replica.id}
                failure = error
            except RetryableError as error:
                # A kept connection may just have been old: its replica gets a second chance.
                if failure is not None or not error.stale:
                    exchange.failed_at(dispatch.replica.address.version)
                    self.fleet.saw(dispatch.replica, Sign.REFUSED)
                    tried |= {dispatch.replica.id}
                failure = error
            except BusyError as error:
                if of_status(error.answer.status).outcome is Outcome.FAILED:
                    exchange.failed_at(dispatch.replica.address.version)
                tried |= {dispatch.replica.id}
                failure = error
            finally:
                dispatch.close()
        assert failure is not None, "where nobody could be chosen at first, `choose` has raised"
        if self.upstream.closed:
            failure = RetryableError("the gateway is shutting down", stale=False)
        if asked.relay is not None:
            return await asked.relay.give_up(failure)
        return _last_word(failure, exchange)

    def _next(
        self,
        wanted: Wanted,
        tried: frozenset[str],
        exchange: Exchange,
        failure: "RetryableError | BusyError | CutError | None",
    ) -> Dispatch | None:
        """Who is asked now, already counted there; None where it must end with the failure."""
        left = self.budget
        if failure is not None and self.upstream.closed:
            return None
        if failure is not None:
            after = left.spend()
            if after is None or exchange.retries >= self.config.retries:
                return None
            left = after
        try:
            dispatch = self.fleet.choose(wanted, tried)
        except ApiError:
            if failure is None:
                raise
            return None  # nobody is left: what happened before is the answer
        if dispatch is not None:
            chosen = dispatch.replica.address
            exchange.routed(chosen.id, chosen.version, dispatch.route.reason, dispatch.detail)
            exchange.warm_tokens = dispatch.warm_tokens
            exchange.uncached_tokens = dispatch.sent.uncached_tokens
            exchange.others = dispatch.others
            exchange.retries += failure is not None
            exchange.rule = self.config.model(wanted.model).rule
            self.metrics.routed(wanted.model, exchange.rule, exchange.warm_tokens)
            self.budget = left
        return dispatch


@dataclass(slots=True)
class Attempt:
    """One replica is asked. `hides` keeps usage back that only we have asked for."""

    proxy: Proxy
    asked: Asked
    dispatch: Dispatch
    model: str
    admitted: Admitted | None
    hides: bool

    async def run(self, path: str, body: bytes) -> web.StreamResponse:
        """The answer. Raises RetryableError, BusyError or CutError: another may still be asked."""
        if self.asked.relay is not None:
            rest = self.asked.relay.rest_of_it()
            assert rest is not None, "else it would not have been cut"
            body = rest
        replica, exchange = self.dispatch.replica, self.asked.exchange
        theirs = replica.names.get(self.model, self.model)
        if theirs != self.model:
            body = with_model(body, theirs)
        attempt_id = exchange.attempt_id()
        exchange.complete = exchange.refused = False  # an attempt before this one may have been
        if self.admitted is not None:
            self.proxy.admission.ledger.dispatched(exchange.id, replica.id, attempt_id)
        headers = sent_headers(self.asked.headers, replica, attempt_id)
        self.asked.trace.pass_on(headers)
        asks = self.hides and replica.takes_usage_option
        upstream = self.proxy.upstream
        if not exchange.first_ns:
            exchange.sent_ns = time.monotonic_ns()
        answer = await self._send(path, with_usage(body) if asks else body, headers)
        try:
            if asks and answer.status in (400, 422):
                refusal = await answer.whole()
                if not _NO_STREAM_OPTIONS.search(refusal):
                    return self._whole(answer, refusal)
                answer.close()
                answer = await upstream.send(replica, path, body, headers)
                # Only where the same request is taken without it was the option at fault.
                replica.takes_usage_option = answer.status >= 400
            return await self._pass_on(answer, asks=asks)
        finally:
            answer.close()

    async def _send(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        exchange = self.asked.exchange
        try:
            answer = await self.proxy.upstream.send(self.dispatch.replica, path, body, headers)
        except RetryableError as error:
            exchange.reached |= error.stale  # it may have taken the request before it closed
            raise
        except BaseException:  # it may have it; also where the client has left
            exchange.reached = True
            raise
        exchange.reached = True
        return answer

    async def _pass_on(self, answer: Answer, *, asks: bool) -> web.StreamResponse:
        judgement = of_status(answer.status)
        if judgement.sign is not None:
            self.proxy.fleet.saw(self.dispatch.replica, judgement.sign)
        if answer.is_event_stream and answer.status < 400:
            if self.asked.relay is not None:
                return await self.asked.relay.go_on(self.dispatch, answer)
            self.asked.relay = relay = self._relay(asks=asks)
            return await relay.run(self.asked.request, answer, with_id)
        if self.asked.relay is not None:  # it was asked to go on, and says no
            refusal = message_of(await answer.whole())
            problem = f"replica {answer.replica.id} cannot go on: {refusal}"
            raise BusyError(web.Response(status=answer.status), problem)
        return self._whole(answer, await answer.whole())

    def _relay(self, *, asks: bool) -> Relay:
        asked, admitted = self.asked, self.admitted
        return Relay(
            self.proxy.record,
            self.proxy.metrics,
            asked.exchange,
            self.dispatch,
            admitted,
            asked.translation.stream() if asked.translation is not None else None,
            EventStream(asks, hide_ids=admitted is not None and admitted.way is not None),
        )

    def _whole(self, answer: Answer, body: bytes) -> web.Response:
        """An answer that came in one piece, passed on as it is.

        Raises BusyError where the replica is at fault or too busy: another may do better.
        """
        exchange, asked = self.asked.exchange, self.asked
        headers = answer.headers()
        judgement = of_status(answer.status)
        if judgement.outcome is Outcome.ANSWERED:
            exchange.answered(answer.status)
            exchange.usage = usage_of(body)
            if exchange.usage is None:
                exchange.refused = is_error(body)
                exchange.contents = guessed_tokens(body)
            if asked.translation is not None:
                body = asked.translation.whole(body)  # ApiError where it makes no sense
        else:
            exchange.refused = True
            exchange.failed(answer.status, message_of(body))
            if asked.dialect is not None:
                body = asked.dialect.refusal(answer.status, body)
        exchange.complete = True
        self.dispatch.first_token(self.model, 0)
        exchange.wrote(body)
        response = with_id(web.Response(status=answer.status, body=body, headers=headers), exchange)
        if judgement.may_retry:
            raise BusyError(response)
        return response


class BusyError(Exception):
    """A replica would not, or could not: somebody else may, else this is the answer."""

    def __init__(self, answer: web.Response, problem: str = "busy") -> None:
        super().__init__(problem)
        self.answer = answer


def client_id(request: web.Request) -> str:
    """The client's own id, where it is printable and short, to find its request by."""
    headers = request.headers
    given = headers.get("X-Client-Request-Id") or headers.get("X-Request-Id") or ""
    return given if _GOOD_ID.fullmatch(given) else ""


def with_id(response: Response, exchange: Exchange) -> Response:
    """The response, saying which request it answers and who answered."""
    response.headers["X-Request-Id"] = exchange.id
    response.headers["Request-Id"] = exchange.id  # what Anthropic's client reads
    if exchange.client_id:
        response.headers["X-Client-Request-Id"] = exchange.client_id
    if exchange.replica:
        response.headers["X-Ridgeline-Replica"] = exchange.replica
    return response


def _refusal(error: ApiError, dialect: Dialect | None) -> web.Response:
    """An error of ours, in the shape of the API that was asked."""
    if dialect is None:
        return error_response(error)
    status, body = dialect.error(error)
    headers = dict(error.headers)
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def _last_word(failure: RetryableError | BusyError | CutError, exchange: Exchange) -> web.Response:
    if isinstance(failure, BusyError):
        return with_id(failure.answer, exchange)
    raise BrokenError(502, str(failure)) from failure
