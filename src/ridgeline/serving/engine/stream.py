"""Answers as server-sent events: one write a step, `[DONE]` or an error at the end.

The part of an event that never changes is made once for each choice, so that a token costs one
small JSON string. `endpoints` calls `send`.
"""

from contextlib import suppress
from typing import Any, Protocol

from aiohttp import web

from ridgeline.serving.engine.answer import Answer, Usage
from ridgeline.serving.engine.continuation import Delta
from ridgeline.serving.engine.tokenizer import Tokenizer
from ridgeline.serving.engine.wire import (
    Head,
    Speech,
    chat_logprobs,
    completion_logprobs,
    encode,
)
from ridgeline.serving.openai import ApiError

_DONE = b"data: [DONE]\n\n"
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class Chunks(Protocol):
    """How one kind of answer looks in a stream; all methods give whole events."""

    def opening(self) -> bytes:
        """Before the first text."""

    def events(self, delta: Delta) -> bytes:
        """One delta; b"" where it has nothing to say."""

    def usage(self, usage: Usage) -> bytes:
        """The last event before the end, where usage was asked for; else b""."""


async def send(request: web.Request, answer: Answer, chunks: Chunks) -> web.StreamResponse:
    """Stream an answer.

    Raises ApiError while nothing is sent yet, so that a request that fails before its first
    token gets a status of its own; later errors become an event. Where the client has gone
    the stream just ends, and leaving the answer aborts it.
    """
    response = web.StreamResponse(headers=_HEADERS)
    with suppress(ConnectionError):
        try:
            await _stream(request, response, answer, chunks)
        except ApiError as error:
            if not response.prepared:
                raise
            await response.write(_event(error.body()))
    return response


async def _stream(
    request: web.Request, response: web.StreamResponse, answer: Answer, chunks: Chunks
) -> None:
    async for deltas in answer.deltas():
        events = b"".join([chunks.events(delta) for delta in deltas])
        if not response.prepared:
            await response.prepare(request)
            events = chunks.opening() + events
        if events:
            await response.write(events)
    await response.write(chunks.usage(answer.usage) + _DONE)


class ChatChunks:
    """`chat.completion.chunk` objects."""

    def __init__(
        self,
        head: Head,
        tokenizer: Tokenizer,
        choices: int,
        *,
        tools: frozenset[str] | None,
        logprobs: bool,
        include_usage: bool,
    ) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._speeches = [Speech(tools) for _ in range(choices)]
        self._logprobs = logprobs
        self._more: dict[str, Any] = {"usage": None} if include_usage else {}
        self._plain = tools is None and not logprobs
        self._around = [
            _around(self._chunk(choice, {"content": _HOLE})) for choice in range(choices)
        ]

    def opening(self) -> bytes:
        """The role of each choice."""
        delta = {"role": "assistant", "content": ""}
        return b"".join(_event(self._chunk(n, delta)) for n in range(len(self._speeches)))

    def events(self, delta: Delta) -> bytes:
        """Text, tool calls, and the reason of the end."""
        if self._plain and delta.finish is None:
            return _filled(self._around[delta.choice], delta.text)
        speech = self._speeches[delta.choice]
        said = speech.deltas(delta)
        if delta.logprobs and not said:
            said = [{"content": ""}]
        chunks = [self._chunk(delta.choice, one) for one in said]
        if self._logprobs and chunks:
            chunks[0]["choices"][0]["logprobs"] = chat_logprobs(self._tokenizer, delta.logprobs)
        if delta.finish is not None:
            chunks.append(self._chunk(delta.choice, {}, speech.finish(delta.finish)))
        return b"".join(map(_event, chunks))

    def usage(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        if not self._more:
            return b""
        return _event(self._head.of("chat.completion.chunk", choices=[], usage=usage))

    def _chunk(
        self, choice: int, delta: dict[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        told = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._head.of("chat.completion.chunk", choices=[told], **self._more)


class CompletionChunks:
    """`text_completion` objects. `echoes` is each choice's prompt, where it is to be repeated."""

    def __init__(
        self,
        head: Head,
        tokenizer: Tokenizer,
        choices: int,
        *,
        echoes: list[str] | None,
        logprobs: bool,
        include_usage: bool,
    ) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._logprobs = logprobs
        self._more: dict[str, Any] = {"usage": None} if include_usage else {}
        self._around = [_around(self._chunk(choice, _HOLE)) for choice in range(choices)]

    def opening(self) -> bytes:
        """The prompts, if they are to be repeated."""
        echoes = self._echoes or []
        return b"".join(_event(self._chunk(n, echo)) for n, echo in enumerate(echoes) if echo)

    def events(self, delta: Delta) -> bytes:
        """Text, and the reason of the end."""
        if not self._logprobs and delta.finish is None:
            return _filled(self._around[delta.choice], delta.text)
        chunks = []
        if delta.text or delta.logprobs:
            chunks.append(self._chunk(delta.choice, delta.text))
        if self._logprobs and chunks:
            chunks[0]["choices"][0]["logprobs"] = completion_logprobs(
                self._tokenizer, delta.logprobs
            )
        if delta.finish is not None:
            chunks.append(self._chunk(delta.choice, "", delta.finish))
        return b"".join(map(_event, chunks))

    def usage(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        if not self._more:
            return b""
        return _event(self._head.of("text_completion", choices=[], usage=usage))

    def _chunk(self, choice: int, text: str, finish: str | None = None) -> dict[str, Any]:
        told = {"index": choice, "text": text, "logprobs": None, "finish_reason": finish}
        return self._head.of("text_completion", choices=[told], **self._more)


#: Stands for the text in an event that is made once and filled for every token.
_HOLE = "\x00text\x00"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"


def _around(chunk: dict[str, Any]) -> tuple[bytes, bytes]:
    """An event's bytes before and after its text."""
    before, hole, after = _event(chunk).rpartition(encode(_HOLE))
    assert hole, "the chunk has the hole"
    return before, after


def _filled(around: tuple[bytes, bytes], text: str) -> bytes:
    if not text:
        return b""
    return around[0] + encode(text) + around[1]
