"""An event stream on its way from a replica to the client, read as it passes.

Called by `proxy` for an answer that is a stream. It ends with [DONE] or an error event, or the
client's connection breaks: never with silence. Where its replica dies and another one can go on
exactly as it would have, the client does not notice: `run` raises `CutError`, the proxy asks the
next one, and `go_on` continues the same stream.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from ridgeline.serving.gateway.admission import Admitted
from ridgeline.serving.gateway.dialects import Stream
from ridgeline.serving.gateway.going_on import Way, body_to_go_on
from ridgeline.serving.gateway.live_replica import Dispatch
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.record import Exchange, Record
from ridgeline.serving.gateway.sse import EventStream, TooLongEventError
from ridgeline.serving.gateway.upstream import Answer, BrokenError, RetryableError
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.health import Sign

WithId = Callable[[web.StreamResponse, Exchange], web.StreamResponse]


class CutError(Exception):
    """A stream's replica is gone in the midst of it; another one may go on."""


@dataclass(slots=True)
class Relay:
    """One stream. `told` translates what the client gets; None for OpenAI's own chunks."""

    record: Record
    metrics: Metrics
    exchange: Exchange
    dispatch: Dispatch
    admitted: Admitted | None
    told: Stream | None
    events: EventStream
    response: web.StreamResponse = field(default_factory=web.StreamResponse)

    async def run(
        self, request: web.Request, answer: Answer, with_id: WithId
    ) -> web.StreamResponse:
        """The whole stream.

        Raises RetryableError where it is empty, CutError where it may go on elsewhere.
        """
        exchange = self.exchange
        piece = await answer.piece()
        if not piece:
            raise RetryableError(f"replica {answer.replica.id} sent an empty stream", stale=True)
        self.response = web.StreamResponse(status=answer.status, headers=answer.headers())
        self.response.headers["X-Accel-Buffering"] = "no"  # a proxy in front shall not hold it back
        exchange.answered(answer.status)
        await with_id(self.response, exchange).prepare(request)
        return await self._to_the_end(piece, answer)

    async def go_on(self, dispatch: Dispatch, answer: Answer) -> web.StreamResponse:
        """The rest of a stream that was cut, from another replica. Raises as `run` does."""
        self.dispatch = dispatch
        assert self.admitted is not None
        self.events.again(len(self.events.ids) if self.admitted.way is Way.PROMPT else 0)
        piece = await answer.piece()
        if not piece:
            raise RetryableError(f"replica {answer.replica.id} sent an empty stream", stale=True)
        self.exchange.answered(answer.status)
        self.exchange.resumed += 1
        return await self._to_the_end(piece, answer)

    async def give_up(self, failure: Exception) -> web.StreamResponse:
        """Nobody goes on: the client is told why its stream ends here."""
        return await self._end(BrokenError(502, str(failure)))

    async def _to_the_end(self, piece: bytes, answer: Answer) -> web.StreamResponse:
        problem = await self._relay(piece, answer)
        if problem is None and self.events.error:
            problem = ApiError(502, _message(self.events.error))
            self._must_not_be_cut(problem)
            self.exchange.failed(502, problem.message)
            await self._write(self.events.error)
            return await self._end(None)
        if problem is not None and self._has_it_all:
            # All of the answer came; only the word that it ended is missing.
            await self._write(b"data: [DONE]\n\n")
            return await self._end(None)
        if problem is not None:
            self._must_not_be_cut(problem)
            self.dispatch.fleet.saw(self.dispatch.replica, Sign.FAILED)
            return await self._end(problem)
        self.exchange.complete = True
        response = await self._end(None)
        await answer.drain()
        return response

    def _must_not_be_cut(self, problem: ApiError) -> None:
        """CutError where another replica can go on."""
        if self.events.finished or not self.events.ids or self.rest_of_it() is None:
            return
        raise CutError(problem.message)

    def rest_of_it(self) -> bytes | None:
        """The body that asks another replica for the rest; None where none can give it."""
        admitted, events = self.admitted, self.events
        if admitted is None or admitted.way is None:
            return None
        return body_to_go_on(admitted.body, admitted.way, events.prompt_ids, events.ids)

    @property
    def _has_it_all(self) -> bool:
        """Whether nothing is missing but the word that it ended."""
        call = self.admitted.call if self.admitted is not None else None
        return (
            self.events.finished and call is not None and call.choices == 1 and not call.wants_usage
        )

    async def _end(self, problem: ApiError | None) -> web.StreamResponse:
        self.exchange.usage = self.events.usage
        if problem is not None:
            self.exchange.failed(int(problem.status), problem.message)
        if last := self._last(problem):
            await self.response.write(last)
        await self.response.write_eof()
        # A client that leaves from here on has it all.
        self.exchange.ended_ns = time.monotonic_ns()
        return self.response

    async def _relay(self, piece: bytes, answer: Answer) -> ApiError | None:
        """Pass on piece after piece; what the client must be told where the end is missing."""
        events = self.events
        try:
            while piece and not events.ended:
                await self._write(self._read(piece))
                if not events.ended:
                    piece = await answer.piece()
        except BrokenError as broken:
            return broken
        except RetryableError as error:
            return BrokenError(502, str(error))
        except TooLongEventError as error:
            return BrokenError(502, f"replica {answer.replica.id} sent {error}")
        finally:
            self.exchange.usage = events.usage  # also where the client leaves
        if events.ended:
            return None
        return BrokenError(502, f"replica {answer.replica.id} ended its answer too early")

    async def _write(self, passed: bytes) -> None:
        """To the client, in the API that it speaks; waits while it does not read."""
        if passed and self.told is not None:
            passed = self.told.feed(passed)
        self.exchange.wrote(passed)
        if passed:
            await self.response.write(passed)

    def _read(self, piece: bytes) -> bytes:
        """The events of a piece, counted on their way."""
        events = self.events
        before = events.contents
        passed = events.feed(piece)
        new = events.contents - before
        if new:
            now_ns = time.monotonic_ns()
            self.dispatch.first_token(self.exchange.model, now_ns)
            self.record.streamed(new, now_ns)
            gap_ns = self.exchange.said(new, now_ns)
            if gap_ns:
                self.metrics.gap(self.exchange.model, gap_ns)
            if self.admitted is not None:
                self.admitted.ticket.said(self.exchange.contents)
                self.admitted.ledger.streamed(self.exchange.id, self.exchange.contents)
        return passed

    def _last(self, problem: ApiError | None) -> bytes:
        """What is left to tell: of a translated stream its end, of any the problem."""
        if self.told is not None:
            return self.told.finish(problem)
        if problem is None:
            return b""
        return b"data: " + msgspec.json.encode(problem.body()) + b"\n\n"


def _message(event: bytes) -> str:
    data = event.partition(b"data:")[2].strip()
    try:
        error = msgspec.json.decode(data)["error"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return event[:300].decode(errors="replace")
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
