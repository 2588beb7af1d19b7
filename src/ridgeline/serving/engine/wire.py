"""OpenAI's answer objects, shared by streamed and whole answers: heads, log-probabilities, calls.

Used by `stream` and `whole`.
"""

import time
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from ridgeline.serving.engine.continuation import Delta, TokenLogprob
from ridgeline.serving.engine.tokenizer import Tokenizer
from ridgeline.serving.engine.tool_calls import CallPiece, ContentPiece, Piece, ToolCallStream

encode = msgspec.json.Encoder().encode

#: JSON has no infinity; OpenAI says this for a token that could not be.
_NEVER = -9999.0


class Head(msgspec.Struct, frozen=True):
    """What every object of one answer says: its id, when it was made (Unix seconds), the model."""

    id: str
    model: str
    created: int

    @classmethod
    def new(cls, prefix: str, model: str) -> "Head":
        """A head with a fresh id."""
        return cls(f"{prefix}-{uuid.uuid4().hex}", model, int(time.time()))

    def of(self, kind: str, **more: object) -> dict[str, Any]:
        """An object of this answer."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            **more,
        }


def chat_logprobs(tokenizer: Tokenizer, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Log-probabilities as chat answers have them."""
    return {"content": [_chat_logprob(tokenizer, one) for one in logprobs], "refusal": None}


def _chat_logprob(tokenizer: Tokenizer, one: TokenLogprob) -> dict[str, Any]:
    return {
        **_named(tokenizer, one.token, one.logprob.logprob),
        "top_logprobs": [_named(tokenizer, token, value) for token, value in one.logprob.top],
    }


def _named(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    spelled = tokenizer.token_bytes(token)
    return {
        "token": spelled.decode("utf-8", "replace"),
        "logprob": max(logprob, _NEVER),
        "bytes": list(spelled),
    }


def completion_logprobs(tokenizer: Tokenizer, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Log-probabilities as plain completions have them; offsets count characters."""
    logprobs = list(logprobs)
    return {
        "tokens": [_key(tokenizer, one.token) for one in logprobs],
        "token_logprobs": [max(one.logprob.logprob, _NEVER) for one in logprobs],
        "top_logprobs": [
            {_key(tokenizer, token): max(value, _NEVER) for token, value in one.logprob.top}
            for one in logprobs
        ],
        "text_offset": [one.start for one in logprobs],
    }


def _key(tokenizer: Tokenizer, token: int) -> str:
    """A token's text, or OpenAI's spelling of bytes that are no text by themselves."""
    spelled = tokenizer.token_bytes(token)
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


class Speech:
    """What one choice of a chat says: plain content, or content and tool calls.

    `tools` are the names of functions that may be called; None: nothing is looked for.
    """

    def __init__(self, tools: frozenset[str] | None) -> None:
        self._calls = None if tools is None else ToolCallStream(tools)

    def deltas(self, delta: Delta) -> list[dict[str, Any]]:
        """The message's delta objects for one step."""
        if self._calls is None:
            return [{"content": delta.text}] if delta.text else []
        pieces = self._calls.feed(delta.text)
        if delta.finish is not None:
            pieces += self._calls.close()
        return [_piece(piece) for piece in pieces]

    def finish(self, reason: str) -> str:
        """OpenAI's finish_reason: a complete answer with calls asks for them to be made."""
        called = self._calls is not None and self._calls.calls
        return "tool_calls" if called and reason == "stop" else reason

    def message(self, text: str) -> dict[str, Any]:
        """The whole message, after all its deltas were taken."""
        if self._calls is None or not self._calls.calls:
            return {"role": "assistant", "content": text, "refusal": None}
        calls = [
            {
                "id": _call_id(),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_json},
            }
            for call in self._calls.calls
        ]
        content = self._calls.content or None
        return {"role": "assistant", "content": content, "refusal": None, "tool_calls": calls}


def _piece(piece: Piece) -> dict[str, Any]:
    match piece:
        case ContentPiece():
            return {"content": piece.text}
        case CallPiece(name=None):
            function = {"arguments": piece.arguments}
            return {"tool_calls": [{"index": piece.index, "function": function}]}
        case CallPiece():
            call = {
                "index": piece.index,
                "id": _call_id(),
                "type": "function",
                "function": {"name": piece.name, "arguments": piece.arguments},
            }
            return {"tool_calls": [call]}


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
