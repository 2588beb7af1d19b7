"""A chat completion, whole or streamed, read as a row of blocks: reasoning, text, tool calls.

Both dialects say answers as blocks that open, grow and close one after the other; a chat stream
says deltas. This is the one place that knows how the second becomes the first.

    content "a" · content "b" · tool_calls[0]   →   Opened(TEXT) Grew Grew Closed Opened(CALL) Grew
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from ridgeline.serving.openai import ApiError

MOST_EVENT_BYTES = 4 * 1024 * 1024
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_DONE = b"[DONE]"


class PromptDetails(msgspec.Struct):
    """What of the prompt came out of the replica's cache."""

    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """What of the output was reasoning."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens, as the replica counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens out of the cache; 0 where the replica does not say."""
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details else 0

    @property
    def reasoning_tokens(self) -> int:
        """Output tokens of reasoning; 0 where the replica does not say."""
        details = self.completion_tokens_details
        return (details.reasoning_tokens or 0) if details else 0


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Said(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Logprobs(msgspec.Struct):
    content: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Said | None = None
    message: _Said | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM: the stop string or token that ended it


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None


_completions = msgspec.json.Decoder(_Completion)


class Kind(StrEnum):
    """What a block holds."""

    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


@dataclass(slots=True)
class Block:
    """One part of an answer. `text` of a call is its arguments, as JSON text.

    `position` counts the answer's blocks, `call` is the call's index at the replica.
    """

    kind: Kind
    position: int
    call: int = 0
    call_id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All it has said so far."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Opened:
    """A block begins."""

    block: Block


@dataclass(frozen=True, slots=True)
class Grew:
    """The open block says more."""

    block: Block
    text: str
    logprobs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Closed:
    """The open block is complete."""

    block: Block


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is complete, see `Answer` for how."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer stops here; `error` says why."""

    error: ApiError


Event = Opened | Grew | Closed | Ended | Failed


@dataclass(slots=True)
class Answer:
    """What an answer has said: its blocks, why it stopped, what it cost.

    `stop_text` is the stop sequence that ended it, where the replica says. `pieces` counts deltas
    with text or calls, about one for a token: the only count where the replica gives none.
    """

    blocks: list[Block] = field(default_factory=list)
    finish: str | None = None
    stop_text: str | None = None
    usage: Usage | None = None
    pieces: int = 0
    ended: bool = False
    is_open: bool = False  # the last block may still grow

    def close(self) -> list[Event]:
        """Nothing follows in the open block."""
        if not self.is_open:
            return []
        self.is_open = False
        return [Closed(self.blocks[-1])]

    def fail(self, error: ApiError) -> list[Event]:
        """The answer ends here; its open block stays as it is."""
        if self.ended:
            return []
        self.ended = True
        return [Failed(error)]

    def take(self, data: bytes) -> list[Event]:
        """What the data of one event says."""
        if data == _DONE:
            self.ended = True
            return [*self.close(), Ended()]
        try:
            chunk = _completions.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return self.fail(_not_ours("an event that is no chat completion"))
        if chunk.error:
            return self.fail(error_from(502, data))
        self.usage = chunk.usage or self.usage
        return [
            event
            for choice in chunk.choices
            if choice.index == 0 and not self.ended
            for event in self._choice(choice, choice.delta)
        ]

    def read(self, body: bytes) -> None:
        """A whole answer. Raises ApiError 502 where it is none."""
        try:
            completion = _completions.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise _not_ours("an answer that is no chat completion") from None
        first = next((one for one in completion.choices if one.index == 0), None)
        if first is None or first.message is None:
            raise _not_ours("an answer without a message")
        self.usage = completion.usage
        for number, call in enumerate(first.message.tool_calls or []):
            call.index = number  # whole answers have none
        self._choice(first, first.message)
        self.close()
        self.ended = True

    def _choice(self, choice: _Choice, said: _Said | None) -> list[Event]:
        events: list[Event] = []
        if said is not None:
            logprobs = (choice.logprobs.content if choice.logprobs else None) or []
            if thought := said.reasoning_content or said.reasoning:
                events += self._say(Kind.REASONING, thought, [])
            if text := said.content or said.refusal:
                events += self._say(Kind.TEXT, text, logprobs)
            for call in said.tool_calls or []:
                events += [] if self.ended else self._call(call)
        if choice.finish_reason is not None and not self.ended:
            self.finish = choice.finish_reason
            self.stop_text = choice.stop_reason if isinstance(choice.stop_reason, str) else None
            events += self.close()
        return events

    def _say(self, kind: Kind, text: str, logprobs: list[dict[str, Any]]) -> list[Event]:
        events: list[Event] = []
        if not self.is_open or self.blocks[-1].kind != kind:
            events += self._begin(Block(kind, len(self.blocks)))
        return events + self._grow(text, logprobs)

    def _call(self, call: _Call) -> list[Event]:
        function = call.function or _Function()
        events: list[Event] = []
        last = self.blocks[-1] if self.is_open else None
        if last is None or last.kind != Kind.CALL or last.call != call.index:
            if not function.name:
                return self.fail(_not_ours("parts of several tool calls, mixed"))
            block = Block(Kind.CALL, len(self.blocks), call.index, call.id or "", function.name)
            events += self._begin(block)
        return events + (self._grow(function.arguments, []) if function.arguments else [])

    def _begin(self, block: Block) -> list[Event]:
        events = self.close()
        self.blocks.append(block)
        self.is_open = True
        return [*events, Opened(block)]

    def _grow(self, text: str, logprobs: list[dict[str, Any]]) -> list[Event]:
        block = self.blocks[-1]
        block.parts.append(text)
        block.logprobs += logprobs
        self.pieces += 1
        return [Grew(block, text, logprobs)]


@dataclass(slots=True)
class ChatStream:
    """The bytes of a chat stream, cut anywhere, as what they say; `answer` grows with them."""

    answer: Answer = field(default_factory=Answer)
    _rest: bytes = b""

    def feed(self, data: bytes) -> list[Event]:
        """What the events that are whole by now say; nothing after the end."""
        buffer = self._rest + data if self._rest else data
        said: list[Event] = []
        begin = 0
        # a "\r\n\r\n" may have been cut after its third byte
        for end in _BLANK_LINE.finditer(buffer, max(0, len(self._rest) - 3)):
            event = _data(buffer[begin : end.start()])
            begin = end.end()
            if event and not self.answer.ended:
                said += self.answer.take(event)
        self._rest = buffer[begin:]
        if len(self._rest) > MOST_EVENT_BYTES:
            self._rest = b""
            said += self.answer.fail(_not_ours(f"an event of over {MOST_EVENT_BYTES:,} bytes"))
        return said

    def finish(self, error: ApiError | None) -> list[Event]:
        """No more bytes come."""
        return self.answer.fail(error or _not_ours("an answer without an end"))


def _data(event: bytes) -> bytes:
    """The `data` lines of an event, joined as the standard says; b"" for a comment."""
    lines = event.splitlines()
    return b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))


class _Error(msgspec.Struct):
    message: str | None = None
    param: str | None = None
    code: Any = None


class _Refusal(msgspec.Struct):
    error: _Error | str | None = None
    message: str | None = None
    detail: Any = None


def error_from(status: int, body: bytes) -> ApiError:
    """A replica's error as ours, whichever of the usual shapes it has."""
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, RecursionError):
        return ApiError(status, body[:300].decode(errors="replace") or "The replica says no more.")
    told = refusal.error if isinstance(refusal.error, _Error) else _Error(refusal.error)
    detail = refusal.detail if isinstance(refusal.detail, str) else None
    message = told.message or refusal.message or detail or "The replica says no more."
    code = told.code if isinstance(told.code, str) else None
    return ApiError(status, message, param=told.param, code=code)


def _not_ours(what: str) -> ApiError:
    return ApiError(502, f"The replica sent {what}.", code="upstream_failed")
