"""Server-sent events of an OpenAI-compatible stream: bytes in, pieces out. No I/O, no clock.

Parsing sits inside every measured gap, so it does little: split on line ends, decode with
msgspec only the fields that are measured: some microseconds a piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec


class Details(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """`usage`: the server's own count of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Delta(msgspec.Struct):
    """What a chat stream adds; servers name the reasoning field in two ways."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class Choice(msgspec.Struct):
    """One choice of a chat (`delta`) or a completion (`text`) stream."""

    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One `data:` line."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One event of a stream: whether it carried content, and whatever else it said.

    `done` is True for `data: [DONE]`. `error` is the server's text, "" for none.
    """

    content: bool = False
    usage: Usage | None = None
    finished: bool = False
    done: bool = False
    error: str = ""


DONE = Piece(done=True)
TOKEN = Piece(content=True)
_decode = msgspec.json.Decoder(Chunk).decode


class Stream:
    """Cuts a byte stream into pieces, however the network has cut it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """All pieces that `data` completes, in order.

        Comments and fields other than `data` are skipped, as the SSE specification says. An
        event that is no JSON object of the expected shape comes out as an error.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield _piece(line[5:].strip())


def _piece(payload: bytes) -> Piece:
    if payload == b"[DONE]":
        return DONE
    try:
        chunk = _decode(payload)
    except msgspec.MsgspecError as error:
        return Piece(error=f"not a chunk of a stream: {error}")
    content = any(map(_has_content, chunk.choices))
    finished = any(choice.finish_reason for choice in chunk.choices)
    if content and not finished and chunk.usage is None and chunk.error is None:
        return TOKEN
    return Piece(content, chunk.usage, finished, error=error_text(chunk.error))


def _has_content(choice: Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)


def error_text(error: Any) -> str:
    """The message of an OpenAI error object, or of whatever a server sends in its place."""
    if error is None:
        return ""
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return str(error)
