"""The handlers that generate: `/v1/chat/completions` and `/v1/completions`.

A request's way: body, checked value, prompt ids and grammar (in a thread where that may take
long), the engine, and back as a stream or whole. Whatever ends a handler aborts its request.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from ridgeline.serving.engine.answer import Answer
from ridgeline.serving.engine.aside import Aside
from ridgeline.serving.engine.asking import Bounds, Wish, ask, ending_ids, stop_texts
from ridgeline.serving.engine.continuation import Continuation
from ridgeline.serving.engine.grammar import check_grammar, response_grammar, tool_grammar
from ridgeline.serving.engine.link import Generation
from ridgeline.serving.engine.messages import Add
from ridgeline.serving.engine.metrics import Watch
from ridgeline.serving.engine.replica import Replica, request_id
from ridgeline.serving.engine.resume import catch_up, resumed
from ridgeline.serving.engine.stops import StopStrings
from ridgeline.serving.engine.stream import ChatChunks, Chunks, CompletionChunks, send
from ridgeline.serving.engine.tokenizer import Tokenizer
from ridgeline.serving.engine.whole import whole_chat, whole_completion
from ridgeline.serving.engine.wire import Head
from ridgeline.serving.http_guard import Patience, read_body
from ridgeline.serving.openai import ApiError, ChatRequest, CompletionRequest, Generating, read
from ridgeline.serving.usage_log import Entry

#: OpenAI's default for plain completions; a chat goes on to the end of its context.
_COMPLETION_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request as the engine will get it, and how its answer will look.

    `chunks` where it is to be streamed, else `whole` makes the body.
    """

    adds: list[Add]
    continuations: list[Continuation]
    chunks: Chunks | None
    whole: Callable[[Answer], Awaitable[bytes]]


class Endpoints:
    """The generating handlers of one replica."""

    def __init__(self, replica: Replica, patience: Patience, aside: Aside) -> None:
        self._replica = replica
        self._patience = patience
        self._aside = aside

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/chat/completions`."""
        return await self._answer(request, self._chat)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/completions`."""
        return await self._answer(request, self._completion)

    async def _answer(
        self, request: web.Request, prepare: Callable[[bytes], Prepared]
    ) -> web.StreamResponse:
        began_s = time.monotonic()
        with self._replica.answering():
            body = await read_body(request, self._replica.limits.body_bytes, self._patience.body_s)
            prepared = await self._aside.run(prepare, body)
            generation = Generation(prepared.adds, self._entry(request, prepared.adds))
            watch = Watch(self._replica.metrics, generation.choices, began_s)
            link = self._replica.loaded.link
            async with Answer(link, generation, prepared.continuations, watch) as answer:
                if prepared.chunks is not None:
                    return await send(request, answer, prepared.chunks)
                told = await prepared.whole(answer)
            return web.Response(body=told, content_type="application/json")

    def _entry(self, request: web.Request, adds: list[Add]) -> Entry | None:
        """The request's record in the usage log, where the replica keeps one."""
        if self._replica.log is None:
            return None
        prompt_tokens = sum(len(add.prompt) for add in adds)
        resumed_tokens = sum(len(add.resumed) for add in adds)
        return self._replica.log.begin(request_id(request), prompt_tokens, resumed_tokens)

    def _chat(self, body: bytes) -> Prepared:
        request = read(body, ChatRequest)
        self._check(request)
        loaded = self._replica.loaded
        tools = request.tools if request.tools and request.tool_choice != "none" else None
        names = frozenset(tool.function.name for tool in tools) if tools else None
        prompt = loaded.prompts.chat(request.messages, tools, request.chat_template_kwargs)
        head = Head.new("chatcmpl", self._replica.name)
        logprobs = _chat_logprobs(request)
        wish = Wish(
            param="messages",
            max_tokens=request.max_completion_tokens or request.max_tokens,
            logprobs=logprobs,
            grammar=_chat_grammar(request),
        )
        adds = ask(request, head.id, [prompt], wish, loaded.bounds)
        adds = resumed(request, adds, wish, loaded.bounds)
        tokenizer = loaded.prompts.tokenizer
        continuations = _continuations(request, adds, tokenizer, loaded.bounds)
        chunks = ChatChunks(
            head,
            tokenizer,
            len(continuations),
            tools=names,
            logprobs=logprobs is not None,
            include_usage=_include_usage(request),
            prompt_ids=_prompt_ids(request, adds),
        )
        if request.resume is not None:
            chunks.resume(catch_up(continuations[0], request.resume.token_ids))

        def whole(answer: Answer) -> Awaitable[bytes]:
            return whole_chat(
                answer,
                head,
                tokenizer,
                len(continuations),
                tools=names,
                logprobs=logprobs is not None,
                prompt_ids=_prompt_ids(request, adds),
            )

        return Prepared(adds, continuations, chunks if request.stream else None, whole)

    def _completion(self, body: bytes) -> Prepared:
        request = read(body, CompletionRequest)
        self._check(request)
        _check_completion(request)
        loaded = self._replica.loaded
        prompts = loaded.prompts.completions(request.prompt)
        head = Head.new("cmpl", self._replica.name)
        wish = Wish(
            param="prompt",
            max_tokens=request.max_tokens,
            default_max_tokens=_COMPLETION_TOKENS,
            logprobs=request.logprobs,
            grammar=_checked(response_grammar(request.response_format), "response_format"),
        )
        adds = ask(request, head.id, prompts, wish, loaded.bounds)
        adds = resumed(request, adds, wish, loaded.bounds)
        tokenizer = loaded.prompts.tokenizer
        continuations = _continuations(request, adds, tokenizer, loaded.bounds)
        echoes = _echoes(request, prompts, tokenizer) if request.echo else None
        chunks = CompletionChunks(
            head,
            tokenizer,
            len(continuations),
            echoes=echoes,
            logprobs=request.logprobs is not None,
            include_usage=_include_usage(request),
            prompt_ids=_prompt_ids(request, adds),
        )
        if request.resume is not None:
            chunks.resume(catch_up(continuations[0], request.resume.token_ids))

        def whole(answer: Answer) -> Awaitable[bytes]:
            return whole_completion(
                answer,
                head,
                tokenizer,
                len(continuations),
                echoes=echoes,
                logprobs=request.logprobs is not None,
                prompt_ids=_prompt_ids(request, adds),
            )

        return Prepared(adds, continuations, chunks if request.stream else None, whole)

    def _check(self, request: Generating) -> None:
        self._replica.check_model(request.model)
        if request.stream_options is not None and not request.stream:
            raise ApiError(
                400, "stream_options goes together with stream only.", param="stream_options"
            )


def _continuations(
    request: Generating, adds: list[Add], tokenizer: Tokenizer, bounds: Bounds
) -> list[Continuation]:
    stops = StopStrings(stop_texts(request))
    ending = ending_ids(request, bounds)
    return [
        Continuation(
            choice,
            tokenizer,
            stops,
            ending=ending,
            min_tokens=add.sampling.min_tokens,
            logprobs=add.sampling.logprobs is not None,
        )
        for choice, add in enumerate(add for add in adds for _ in range(add.n))
    ]


def _prompt_ids(request: Generating, adds: list[Add]) -> list[list[int]] | None:
    """Each choice's prompt, where its ids are to be told."""
    if not request.return_token_ids:
        return None
    return [add.prompt for add in adds for _ in range(add.n)]


def _include_usage(request: Generating) -> bool:
    return request.stream_options is not None and bool(request.stream_options.include_usage)


def _chat_logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs is not None:
        raise ApiError(400, "top_logprobs needs logprobs to be true.", param="top_logprobs")
    return None


def _chat_grammar(request: ChatRequest) -> str | None:
    """The grammar of the answer: calls where they are required, else what the format says."""
    parallel = request.parallel_tool_calls is not False
    calls = tool_grammar(request.tools, request.tool_choice, parallel=parallel)
    answer = response_grammar(request.response_format)
    if calls and answer:
        raise ApiError(
            400,
            "An answer cannot both be a required tool call and follow response_format.",
            param="response_format",
        )
    if calls:
        return _checked(calls, "tools")
    return _checked(answer, "response_format")


def _checked(grammar: str | None, param: str) -> str | None:
    if grammar is not None:
        check_grammar(grammar, param=param)
    return grammar


def _check_completion(request: CompletionRequest) -> None:
    if request.best_of not in (None, request.n or 1):
        raise ApiError(
            400,
            "best_of is not supported here; send n and choose among the answers.",
            param="best_of",
            code="unsupported_parameter",
        )
    if request.echo and request.logprobs is not None:
        raise ApiError(
            400, "echo and logprobs do not go together here.", param="echo",
            code="unsupported_parameter",
        )  # fmt: skip


def _echoes(
    request: CompletionRequest, prompts: list[list[int]], tokenizer: Tokenizer
) -> list[str]:
    """Each choice's prompt as text: as it was sent, or decoded where ids were sent."""
    given = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    texts = [
        given[number] if isinstance(given[0], str) else tokenizer.decode(ids)
        for number, ids in enumerate(prompts)
    ]
    return [str(text) for text in texts for _ in range(request.n or 1)]
