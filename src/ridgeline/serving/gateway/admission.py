"""Whether and when a request may run: what it may use is reserved, then it waits for a slot.

Called by `proxy` for every request that generates. The order is the law: nothing is sent to a
replica for which nobody's money or tokens were kept, and whoever leaves while waiting takes the
reservation along.
"""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.gateway.calls import Call, peek, with_ids, with_most_tokens
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.going_on import Way, way_of
from ridgeline.serving.gateway.ledger import Ledger, LimitError
from ridgeline.serving.gateway.ledger_rows import Actual, Ask
from ridgeline.serving.gateway.line import Line, Ticket
from ridgeline.serving.gateway.live_replica import Wanted
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.own_count import Counted, reckon
from ridgeline.serving.gateway.prompt_blocks import prompt_blocks
from ridgeline.serving.gateway.record import Exchange
from ridgeline.serving.openai import ApiError, model_not_found
from ridgeline.serving.policy.answer_length import longest, needs_bound
from ridgeline.serving.policy.ending import Ended, Then, close, must_be_read
from ridgeline.serving.policy.price import charge
from ridgeline.serving.policy.sizes import Sizes, estimate, expected, learned
from ridgeline.serving.policy.vtc import Entry

#: More tokens than this are a mistake or an attack: 64 bits hold their price in nano-dollars.
_MOST_OUTPUT_TOKENS = 2**33
#: Endpoints whose answers have no tokens of their own.
_NO_OUTPUT = ("/v1/embeddings",)


@dataclass(slots=True)
class Admitted:
    """A request that may run now; `body` is what a replica gets.

    `way` says how a stream that is cut can go on at another replica; None where it cannot.
    `must_be_read` says that only the answer's end will tell what it used. `most_output_tokens` of
    all its answers were allowed; None where the replica was told no bound.
    """

    caller: Caller
    call: Call
    body: bytes
    wanted: Wanted
    ticket: Ticket
    ledger: Ledger
    way: Way | None
    must_be_read: bool
    most_output_tokens: int | None


@dataclass(slots=True)
class Admission:
    """Lets requests in, and settles what they used."""

    config: GatewayConfig
    fleet: Fleet
    ledger: Ledger
    line: Line
    metrics: Metrics
    _sizes: dict[str, Sizes] = field(default_factory=dict)
    _settling: set[asyncio.Task[Any]] = field(default_factory=set)

    async def admit(
        self,
        exchange: Exchange,
        caller: Caller,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> Admitted:
        """Reserve and wait. Raises ApiError where it may not run, or not now."""
        exchange.tenant, exchange.key_id = caller.tenant, caller.key_id
        exchange.priority_class = caller.priority_class
        call = peek(body)
        exchange.stream = bool(call.stream)
        self.must_serve(caller, call.model)
        exchange.model = call.model
        settings = self.config.model(call.model)
        wanted = self._wanted(caller, call, body, headers, settings, exchange.id)
        exchange.session, exchange.hashes = wanted.session, wanted.blocks.hashes
        exchange.expected_tokens = wanted.input_tokens
        asked_most = call.most_tokens(path)
        most = (
            0
            if path in _NO_OUTPUT
            else longest(
                asked_most,
                usual=settings.max_output_tokens,
                context_tokens=self.fleet.context(call.model),
                prompt_tokens=wanted.most_input_tokens,
            )
        )
        limits = (caller.tenant_limits, caller.key_limits)
        if most and asked_most is None and needs_bound(limits, settings.price):
            body = with_most_tokens(body, most)
            asked_most = most
        output_tokens = _bounded(most, call.choices)
        ask = Ask(
            exchange.id, caller, call.model, path, wanted.most_input_tokens, output_tokens,
            settings.price,
        )  # fmt: skip
        try:
            await self.ledger.reserve(ask)
        except ApiError as error:
            limit = error.limit if isinstance(error, LimitError) else "ledger"
            self.metrics.rejected(caller.tenant, limit, _kind(error))
            raise
        exchange.admitted_ns = self.line.now_ns()
        try:
            await self.fleet.until_served(call.model)
            ticket = await self._enter(exchange, caller, wanted, output_tokens, call, len(body))
        except BaseException:
            self._later(self.ledger.release(exchange.id))
            raise
        way = way_of(self.fleet.owner(call.model), path, call, body)
        if way is not None:
            draws = call.seed is None and call.temperature != 0
            body = with_ids(body, random.getrandbits(62) if draws else None)
        read = must_be_read(
            stream=exchange.stream,
            keeps_log=self.fleet.keeps_log(call.model),
            limits=limits,
            price=settings.price,
        )
        told = None if asked_most is None else asked_most * call.choices
        return Admitted(caller, call, body, wanted, ticket, self.ledger, way, read, told)

    def ended(self, exchange: Exchange, admitted: Admitted) -> None:
        """Charge what it used: known now, or found out by the recovery. Nobody waits for it."""
        exchange.ended_ns = exchange.ended_ns or self.line.now_ns()
        usage = exchange.usage
        if usage is not None and usage.prompt_tokens:
            uncached = max(0, usage.prompt_tokens - exchange.cached_tokens)
            admitted.ticket.corrected(uncached)
            admitted.ticket.said(usage.completion_tokens)
            known = self._sizes.get(exchange.model, Sizes())
            size = admitted.wanted.blocks.text_bytes
            self._sizes[exchange.model] = learned(known, size, usage.prompt_tokens)
        admitted.ticket.close()
        closing = close(Ended(exchange.reached, exchange.complete, exchange.refused))
        exchange.reasons["charge"] = closing.reason
        match closing.then:
            case Then.RELEASE:
                self._later(self.ledger.release(exchange.id))
            case Then.LOOK_UP:
                self._later(self.ledger.end_unknown(exchange.id, exchange.status))
            case Then.SETTLE:
                self._charge(exchange, admitted)
        # What was charged is a part of the record.
        self.ledger.record_decision(exchange.id, exchange.tenant, exchange.why())

    async def close(self) -> None:
        """Wait until everything that ended is settled."""
        while self._settling:
            await asyncio.wait(self._settling)

    def _charge(self, exchange: Exchange, admitted: Admitted) -> None:
        counted = Counted(
            admitted.wanted.input_tokens, exchange.contents, admitted.most_output_tokens
        )
        reckoned = reckon(
            exchange.usage,
            counted,
            replica=exchange.replica,
            status=exchange.status,
            stream=exchange.stream,
        )
        if reckoned.finding:
            self.metrics.mismatched(exchange.model)
            exchange.reasons["usage"] = reckoned.finding
        actual = reckoned.actual
        price = self.config.model(exchange.model).price
        exchange.basis = actual.basis
        exchange.usd = charge(
            price, actual.input_tokens, actual.cached_tokens, actual.output_tokens
        )
        self._later(self._settle(exchange, actual))

    async def _settle(self, exchange: Exchange, actual: Actual) -> None:
        await self.ledger.settle(exchange.id, actual)
        self.metrics.settled(actual.basis)

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        """The client need not wait for it, and cannot stop it by leaving."""
        task = asyncio.create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def must_serve(self, caller: Caller, model: str) -> None:
        """ApiError 404 for a model that nobody serves or this key may not use: they look alike."""
        may = caller.models is None or model in caller.models
        if may and self.fleet.knows(model):
            return
        if may and (self.fleet.may_come or model in self.config.models):
            raise self.fleet.unready(
                model, "replicas are starting, and have not said what they serve"
            )
        raise model_not_found(model, [one["id"] for one in visible(self.fleet.models(), caller)])

    def _wanted(
        self,
        caller: Caller,
        call: Call,
        body: bytes,
        headers: Mapping[str, str],
        settings: ModelSettings,
        request_id: str,
    ) -> Wanted:
        blocks = prompt_blocks(body, call.model, caller.tenant)
        sizes = self._sizes.get(call.model, Sizes())
        tokens = expected(sizes, blocks.text_bytes)
        most = estimate(sizes, blocks.text_bytes)
        session = headers.get(settings.session_header) or call.user or ""
        named = f"{caller.tenant}/{session}" if session else ""
        return Wanted(call.model, blocks, tokens, named, most, named or request_id)

    async def _enter(
        self,
        exchange: Exchange,
        caller: Caller,
        wanted: Wanted,
        output_tokens: int,
        call: Call,
        body_bytes: int,
    ) -> Ticket:
        warm = max(self.fleet.warm_tokens(wanted).values(), default=0)
        entry = Entry(
            exchange.id,
            wanted.model,
            caller.tenant,
            caller.priority_class,
            max(1, wanted.input_tokens - warm),
            output_tokens,
            caller.weight,
            call.choices,
            body_bytes,
        )
        try:
            ticket = await self.line.enter(entry)
        except ApiError as error:
            self.metrics.rejected(caller.tenant, "queue", _kind(error))
            raise
        exchange.dequeued_ns = self.line.now_ns()
        exchange.reasons["queue"] = ticket.reason
        self.metrics.queued(caller.priority_class, ticket.waited_s)
        return ticket


def visible(models: list[dict[str, Any]], caller: Caller) -> list[dict[str, Any]]:
    """The models that a key may use."""
    return [one for one in models if caller.models is None or one["id"] in caller.models]


def _bounded(most: int, choices: int) -> int:
    """Tokens of all answers. ApiError 400 where the ledger could not even count their price."""
    if most * choices > _MOST_OUTPUT_TOKENS:
        raise ApiError(
            400,
            f"{choices:,} answers of up to {most:,} tokens are more than any replica can give. "
            "Ask for fewer answers (`n`, prompts), or shorter ones (`max_tokens`).",
            param="n" if choices > 1 else "max_tokens",
        )
    return most * choices


def _kind(error: ApiError) -> str:
    return "later" if error.status in (429, 503) else "never"
