"""Anthropic's `POST /v1/messages` and its token count, in front of chat completions.

The order of the events is Anthropic's: message_start, each block from start to stop with its
deltas in between, message_delta with the reason and the usage, message_stop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ridgeline.serving.gateway.dialects.answer import (
    Answer,
    Block,
    ChatStream,
    Closed,
    Ended,
    Event,
    Failed,
    Grew,
    Kind,
    Opened,
    error_from,
)
from ridgeline.serving.gateway.dialects.messages_request import (
    CountRequest,
    MessagesRequest,
    chat_body,
    tokenize_body,
)
from ridgeline.serving.openai import ApiError, read

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class _Anthropic:
    """What is the same for all of Anthropic's endpoints."""

    __slots__ = ()

    def error(self, error: ApiError) -> tuple[int, bytes]:
        """See `Dialect`."""
        return int(error.status), msgspec.json.encode(_error(error))

    def refusal(self, status: int, body: bytes) -> bytes:
        """See `Dialect`."""
        return self.error(error_from(status, body))[1]

    def authorization(self, headers: Mapping[str, str]) -> str:
        """See `Dialect`; Anthropic's clients send the key alone, in a header of its own."""
        key = headers.get("X-Api-Key", "")
        return f"Bearer {key}" if key else headers.get("Authorization", "")


class MessagesDialect(_Anthropic):
    """The Messages API."""

    __slots__ = ()

    def request(self, body: bytes, *, request_id: str, now_s: float) -> "MessagesTranslation":
        """See `Dialect`; answers of this API do not say the time."""
        del now_s
        asked = read(body, MessagesRequest)
        return MessagesTranslation(chat_body(asked, body), Shown(asked.model, request_id))


class CountDialect(_Anthropic):
    """The Messages API's question how many tokens a request has."""

    __slots__ = ()

    def request(self, body: bytes, *, request_id: str, now_s: float) -> "CountTranslation":
        """See `Dialect`; the answer is a number only."""
        del request_id, now_s
        return CountTranslation(tokenize_body(read(body, CountRequest)))


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer says of its request."""

    model: str
    request_id: str

    def message(self, answer: Answer, **more: Any) -> dict[str, Any]:
        """The message object."""
        return {
            "id": f"msg_{self.request_id.removeprefix('req-')}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(answer),
            **more,
        }

    def block(self, block: Block, *, empty: bool = False) -> dict[str, Any]:
        """A content block, complete or as it begins."""
        text = "" if empty else block.text
        match block.kind:
            case Kind.TEXT:
                return {"type": "text", "text": text}
            case Kind.REASONING:
                # The signature is Anthropic's proof that the thought is its own.
                return {"type": "thinking", "thinking": text, "signature": ""}
            case Kind.CALL:
                tail = self.request_id.removeprefix("req-")
                call_id = block.call_id or f"toolu_{tail}_{block.position}"
                call = {"id": call_id, "name": block.name, "input": _input(text)}
                return {"type": "tool_use", **call}


@dataclass(frozen=True, slots=True)
class MessagesTranslation:
    """One request to the Messages API."""

    body: bytes
    shown: Shown
    path: str = "/v1/chat/completions"

    def whole(self, body: bytes) -> bytes:
        """See `Translation`."""
        answer = Answer()
        answer.read(body)
        content = [self.shown.block(block) for block in answer.blocks]
        return msgspec.json.encode(self.shown.message(answer, content=content, **_stop(answer)))

    def stream(self) -> "MessagesStream":
        """See `Translation`."""
        return MessagesStream(self.shown)


class _Count(msgspec.Struct):
    count: int


@dataclass(frozen=True, slots=True)
class CountTranslation:
    """One request for a count."""

    body: bytes
    path: str = "/tokenize"

    def whole(self, body: bytes) -> bytes:
        """See `Translation`."""
        try:
            counted = msgspec.json.decode(body, type=_Count)
        except (msgspec.DecodeError, RecursionError):
            problem = "The replica sent an answer that is no count of tokens."
            raise ApiError(502, problem, code="upstream_failed") from None
        return msgspec.json.encode({"input_tokens": counted.count})

    def stream(self) -> "MessagesStream":
        """Counts are not streamed."""
        raise ApiError(502, "The replica streamed a count of tokens.", code="upstream_failed")


@dataclass(slots=True)
class MessagesStream:
    """A message as it is made."""

    _shown: Shown
    _chat: ChatStream = field(default_factory=ChatStream)
    _begun: bool = False

    def feed(self, data: bytes) -> bytes:
        """See `Stream`."""
        said = self._chat.feed(data)
        return b"".join([self._opening(), *map(self._event, said)])

    def finish(self, error: ApiError | None) -> bytes:
        """See `Stream`."""
        return b"".join([self._opening(), *map(self._event, self._chat.finish(error))])

    def _opening(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return _say("message_start", message=self._shown.message(Answer()))

    def _event(self, event: Event) -> bytes:
        match event:
            case Opened(block):
                shown = self._shown.block(block, empty=True)
                return _say("content_block_start", index=block.position, content_block=shown)
            case Grew(block, text, _):
                return _say("content_block_delta", index=block.position, delta=_delta(block, text))
            case Closed(block):
                return _say("content_block_stop", index=block.position)
            case Ended():
                answer = self._chat.answer
                told = _say("message_delta", delta=_stop(answer), usage=_usage(answer))
                return told + _say("message_stop")
            case Failed(error):
                return _say("error", error=_error(error)["error"])


def _say(name: str, /, **more: Any) -> bytes:
    event = {"type": name, **more}
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(event))


def _delta(block: Block, text: str) -> dict[str, str]:
    match block.kind:
        case Kind.TEXT:
            return {"type": "text_delta", "text": text}
        case Kind.REASONING:
            return {"type": "thinking_delta", "thinking": text}
        case Kind.CALL:
            return {"type": "input_json_delta", "partial_json": text}


def _stop(answer: Answer) -> dict[str, Any]:
    """Why it ended. A stop sequence is told where the replica tells it."""
    reason = _STOP_REASONS.get(answer.finish or "", "end_turn")
    if any(block.kind == Kind.CALL for block in answer.blocks) and reason == "end_turn":
        reason = "tool_use"  # some replicas end a required call with "stop"
    elif answer.stop_text is not None and reason == "end_turn":
        reason = "stop_sequence"
    stop_text = answer.stop_text if reason == "stop_sequence" else None
    return {"stop_reason": reason, "stop_sequence": stop_text}


def _usage(answer: Answer) -> dict[str, int]:
    """Tokens as Anthropic counts them: what the cache held is not among the input tokens.

    Where the replica counts none, the pieces of its stream stand for the output.
    """
    usage = answer.usage
    if usage is None:
        return {"input_tokens": 0, "output_tokens": answer.pieces}
    return {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _input(arguments: str) -> Any:
    """A call's arguments as the object they have to be, or what they are instead, by that name.

    An answer that is cut may end within them; `stop_reason` says so.
    """
    try:
        read_input = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {"INVALID_JSON": arguments}
    return read_input if isinstance(read_input, dict) else {"INVALID_JSON": arguments}


def _error(error: ApiError) -> dict[str, Any]:
    """Anthropic's shape of an error; the field at fault goes into the message."""
    status = int(error.status)
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    named = error.param is not None and error.param not in error.message
    message = f"{error.param}: {error.message}" if named else error.message
    return {"type": "error", "error": {"type": kind, "message": message}}
