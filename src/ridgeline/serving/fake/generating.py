"""The handlers of a fake replica that generate: chat, completions, embeddings.

Requests are read by the types that Ridgeline's own engine reads them by. What shapes a real
model's text (temperature, stop strings, tools, formats) is taken and has no effect; what would
change the form of an answer and is not there (logprobs, echo) is refused.
"""

import base64
import itertools
import math
import struct
from collections.abc import Callable

import msgspec
from aiohttp import web

from ridgeline.serving.fake.answers import Answer, Shape, encode
from ridgeline.serving.fake.engine import Generation
from ridgeline.serving.fake.replica import Replica, request_id
from ridgeline.serving.fake.tokens import chat, stream_key, token_at
from ridgeline.serving.fake.tokens import encode as tokens_of
from ridgeline.serving.http_guard import read_body
from ridgeline.serving.openai import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    Generating,
    context_too_long,
    read,
)
from ridgeline.serving.openai.requests import Message

BODY_BYTES = 4_000_000
_BODY_S = 60.0
_COMPLETION_TOKENS = 16  # OpenAI's default
_MOST_CHOICES = 512
_DIMENSIONS = 64


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/embeddings`."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: str | None = None
    dimensions: int | None = None


class Endpoints:
    """The generating handlers of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._number = itertools.count()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/chat/completions`."""
        return await self._answer(request, self._chat)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/completions`."""
        return await self._answer(request, self._completion)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/embeddings`: unit vectors that depend on the text alone."""
        self._replica.check_ready()
        self._replica.fault_for(request)
        asked = read(await read_body(request, BODY_BYTES, _BODY_S), EmbeddingRequest)
        self._replica.check_model(asked.model)
        prompts = prompts_of(asked.input, param="input")
        size = asked.dimensions or _DIMENSIONS
        if not 1 <= size <= 4096:
            raise ApiError(400, "dimensions has to be 1 to 4096.", param="dimensions")
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": _spelled(_vector(prompt, size), asked.encoding_format),
            }
            for index, prompt in enumerate(prompts)
        ]
        count = sum(map(len, prompts))
        entry = self._replica.log.begin(request_id(request), count)
        self._replica.log.end(entry)
        usage = {"prompt_tokens": count, "total_tokens": count}
        told = {"object": "list", "model": asked.model, "data": data, "usage": usage}
        return web.Response(body=encode(told), content_type="application/json")

    async def _answer(
        self, request: web.Request, prepare: Callable[[bytes], tuple[Generating, Generation, Shape]]
    ) -> web.StreamResponse:
        replica = self._replica
        replica.check_ready()
        fault = replica.fault_for(request)
        body = await read_body(request, BODY_BYTES, _BODY_S)
        asked, generation, shape = prepare(body)
        replica.engine.ask(generation, request_id(request))
        try:
            answer = Answer(shape, generation, replica.metrics, fault, replica.die)
            return await (answer.stream(request) if asked.stream else answer.whole(request))
        finally:
            replica.metrics.finished["abort"] += len(generation.running)
            replica.engine.close(generation)

    def _chat(self, body: bytes) -> tuple[Generating, Generation, Shape]:
        asked = read(body, ChatRequest)
        if asked.logprobs or asked.top_logprobs is not None:
            raise _not_here("logprobs")
        prompt = chat((message.role, _text(message)) for message in asked.messages)
        most = asked.max_completion_tokens or asked.max_tokens
        generation = self._generation(asked, [prompt], most, param="messages")
        return asked, generation, _shape(asked, chat=True)

    def _completion(self, body: bytes) -> tuple[Generating, Generation, Shape]:
        asked = read(body, CompletionRequest)
        for field in ("logprobs", "echo", "best_of"):
            if getattr(asked, field) not in (None, False):
                raise _not_here(field)
        prompts = prompts_of(asked.prompt, param="prompt")
        most = asked.max_tokens or _COMPLETION_TOKENS
        generation = self._generation(asked, prompts, most, param="prompt")
        return asked, generation, _shape(asked, chat=False)

    def _generation(
        self, asked: Generating, prompts: list[list[int]], most: int | None, *, param: str
    ) -> Generation:
        """Raises ApiError where it cannot be made."""
        self._replica.check_model(asked.model)
        setup, longest = self._replica.setup, max(map(len, prompts))
        n = asked.n or 1
        if not all(prompts):
            raise ApiError(400, "The prompt is empty: it has no token.", param=param)
        if n * len(prompts) > _MOST_CHOICES:
            raise ApiError(400, f"More than {_MOST_CHOICES} answers are asked for.", param="n")
        room = self._replica.engine.longest - longest
        if room < max(most or 1, 1):
            raise context_too_long(longest, most, self._replica.engine.longest, param=param)
        tokens = most or min(setup.answer_tokens, room)
        return Generation(
            f"r{next(self._number)}",
            prompts,
            n=n,
            most=tokens,
            ends="length" if most else "stop",
            seed=setup.seed if asked.seed is None else asked.seed,
            salt=(asked.cache_salt or "").encode(),
            priority=asked.priority or 0,
            resumed=_resumed(asked, n * len(prompts), tokens),
        )


def prompts_of(given: str | list[str | int | list[int]], *, param: str) -> list[list[int]]:
    """Every prompt's ids: of a text, several texts, ids, or several lists of ids."""
    if isinstance(given, str):
        return [tokens_of(given)]
    ids = [one for one in given if isinstance(one, int)]
    if given and len(ids) == len(given):
        return [ids]
    if ids or not given:
        raise ApiError(400, f"{param} has to be text, texts, ids or lists of ids.", param=param)
    return [tokens_of(one) if isinstance(one, str) else list(one) for one in given
            if not isinstance(one, int)]  # fmt: skip


def _resumed(asked: Generating, choices: int, most: int) -> tuple[int, ...]:
    """The tokens that were said elsewhere. Raises ApiError 400 where they cannot be continued."""
    if asked.resume is None:
        return ()
    said = tuple(asked.resume.token_ids)
    problem = ""
    if not asked.stream:
        problem = "resume goes together with stream only."
    elif choices != 1:
        problem = "resume continues one answer: n is 1, and there is one prompt."
    elif len(said) >= most:
        problem = f"resume has {len(said)} tokens, and the answer may have {most}: it is complete."
    if problem:
        raise ApiError(400, problem, param="resume")
    return said


def _shape(asked: Generating, *, chat: bool) -> Shape:
    options = asked.stream_options
    if options is not None and not asked.stream:
        raise ApiError(
            400, "stream_options goes together with stream only.", param="stream_options"
        )
    return Shape(
        chat=chat,
        model=asked.model,
        include_usage=options is not None and bool(options.include_usage),
        token_ids=bool(asked.return_token_ids),
        resumed=asked.resume is not None,
    )


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text or f"<{part.type}>" for part in message.content or ())


def _not_here(field: str) -> ApiError:
    return ApiError(
        400, f"A fake replica has no {field}; leave it out.", param=field,
        code="unsupported_parameter",
    )  # fmt: skip


def _vector(prompt: list[int], size: int) -> list[float]:
    key = stream_key(prompt, 0, 0)
    raw = [token_at(key, place) % 2001 / 1000 - 1 for place in range(size)]
    length = math.sqrt(sum(value * value for value in raw)) or 1.0
    return [value / length for value in raw]


def _spelled(vector: list[float], encoding: str | None) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector
