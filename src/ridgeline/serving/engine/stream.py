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

    def resume(self, said: Delta) -> None:
        """Begin behind what another replica has sent."""

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
    """`chat.completion.chunk` objects.

    With `prompt_ids` (one list a choice) token ids are told too: a step then is one event, so that
    ids and what they mean arrive together or not at all.
    """

    def __init__(
        self,
        head: Head,
        tokenizer: Tokenizer,
        choices: int,
        *,
        tools: frozenset[str] | None,
        logprobs: bool,
        include_usage: bool,
        prompt_ids: list[list[int]] | None = None,
    ) -> None:
        self._head = head
        self._prompt_ids = prompt_ids
        self._is_resumed = False
        self._tokenizer = tokenizer
        self._speeches = [Speech(tools) for _ in range(choices)]
        self._logprobs = logprobs
        self._more: dict[str, Any] = {"usage": None} if include_usage else {}
        self._plain = tools is None and not logprobs and prompt_ids is None
        self._around = [
            _around(self._chunk(choice, {"content": _HOLE})) for choice in range(choices)
        ]

    def opening(self) -> bytes:
        """The role of each choice, unless it was said elsewhere."""
        if self._is_resumed:
            return b""
        delta = {"role": "assistant", "content": ""}
        chunks = [self._chunk(n, delta) for n in range(len(self._speeches))]
        for chunk, ids in zip(chunks, self._prompt_ids or (), strict=False):
            chunk["prompt_token_ids"] = ids
        return b"".join(map(_event, chunks))

    def resume(self, said: Delta) -> None:
        """Another replica has sent this much: what the stream tells begins behind it."""
        self._is_resumed = True
        self._speeches[said.choice].deltas(said)

    def events(self, delta: Delta) -> bytes:
        """Text, tool calls, and the reason of the end."""
        if self._plain and delta.finish is None:
            return _filled(self._around[delta.choice], delta.text)
        speech = self._speeches[delta.choice]
        said = speech.deltas(delta)
        if self._prompt_ids is not None:
            said = [_together(said)]
        elif delta.logprobs and not said:
            said = [{"content": ""}]
        chunks = [self._chunk(delta.choice, one) for one in said]
        if self._logprobs and chunks:
            chunks[0]["choices"][0]["logprobs"] = chat_logprobs(self._tokenizer, delta.logprobs)
        if self._prompt_ids is not None:
            chunks[0]["choices"][0]["token_ids"] = delta.tokens
            if delta.finish is not None:
                chunks[0]["choices"][0]["finish_reason"] = speech.finish(delta.finish)
        elif delta.finish is not None:
            chunks.append(self._chunk(delta.choice, {}, speech.finish(delta.finish)))
        _name_stop(chunks, delta)
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
    """`text_completion` objects. `echoes` is each choice's prompt, where it is to be repeated.

    `prompt_ids` as in `ChatChunks`.
    """

    def __init__(
        self,
        head: Head,
        tokenizer: Tokenizer,
        choices: int,
        *,
        echoes: list[str] | None,
        logprobs: bool,
        include_usage: bool,
        prompt_ids: list[list[int]] | None = None,
    ) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._prompt_ids = prompt_ids
        self._untold = dict(enumerate(prompt_ids or ()))
        self._logprobs = logprobs
        self._more: dict[str, Any] = {"usage": None} if include_usage else {}
        self._around = [_around(self._chunk(choice, _HOLE)) for choice in range(choices)]

    def opening(self) -> bytes:
        """The prompts, if they are to be repeated."""
        echoes = self._echoes or []
        return b"".join(_event(self._chunk(n, echo)) for n, echo in enumerate(echoes) if echo)

    def events(self, delta: Delta) -> bytes:
        """Text, and the reason of the end."""
        if self._prompt_ids is not None:
            return _event(self._with_ids(delta))
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
        _name_stop(chunks, delta)
        return b"".join(map(_event, chunks))

    def resume(self, said: Delta) -> None:
        """Another replica has sent this much, the prompts too."""
        self._echoes = None
        self._untold.pop(said.choice, None)

    def _with_ids(self, delta: Delta) -> dict[str, Any]:
        chunk = self._chunk(delta.choice, delta.text, delta.finish)
        told = chunk["choices"][0]
        told["token_ids"] = delta.tokens
        if (prompt := self._untold.pop(delta.choice, None)) is not None:
            told["prompt_token_ids"] = prompt
        if self._logprobs:
            told["logprobs"] = completion_logprobs(self._tokenizer, delta.logprobs)
        _name_stop([chunk], delta)
        return chunk

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


def _together(said: list[dict[str, Any]]) -> dict[str, Any]:
    """Several delta objects of a message as one, which means the same."""
    calls = [call for one in said for call in one.get("tool_calls", ())]
    content = "".join(one.get("content", "") for one in said)
    if not calls:
        return {"content": content}
    return {"content": content, "tool_calls": calls} if content else {"tool_calls": calls}


def _name_stop(chunks: list[dict[str, Any]], delta: Delta) -> None:
    """Which stop string ended it, by vLLM's name."""
    if delta.stop is not None:
        chunks[-1]["choices"][0]["stop_reason"] = delta.stop


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
