"""A replica's event stream, read as it passes: whole events, their tokens, their usage.

Sans I/O: bytes go in, bytes for the client come out. Called by `proxy` for every piece.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

MOST_EVENT_BYTES = 4 * 1024 * 1024
# A replica that was asked for usage says null in each chunk. In a string quotes are escaped, so
# this is only ever the end of the object.
_NO_USAGE = re.compile(rb',\s?"usage":\s?null\}(\s*)$')
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_DONE = b"[DONE]"


class Details(msgspec.Struct):
    """What of the prompt was found in the replica's cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens, as the replica counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Details | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None

    @property
    def says_something(self) -> bool:
        told = self.delta
        if told is None:
            return bool(self.text)
        return bool(told.content or told.reasoning_content or told.reasoning or told.tool_calls)


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None


_chunks = msgspec.json.Decoder(_Chunk)


class TooLongEventError(Exception):
    """A replica sends megabytes without the end of an event."""


@dataclass(slots=True)
class EventStream:
    """One answer's stream. With `hide_usage`, the event that only carries usage is kept back.

    `ended` turns true with `[DONE]` or an error event (its data is `error`): whatever stops before
    was cut. `contents`
    counts events that carry text or tool calls, about one for a token.
    """

    hide_usage: bool
    ended: bool = False
    error: bytes = b""
    usage: Usage | None = None
    contents: int = 0
    _rest: bytes = field(default=b"")

    def feed(self, data: bytes) -> bytes:
        """The whole events so far, for the client; what is not yet whole waits here.

        Raises TooLongEventError where an event exceeds `MOST_EVENT_BYTES`.
        """
        buffer = self._rest + data if self._rest else data
        passed, begin = [], 0
        for end in _BLANK_LINE.finditer(buffer, max(0, len(self._rest) - 3)):
            event = buffer[begin : end.end()]
            begin = end.end()
            if self._read(event):
                passed.append(_NO_USAGE.sub(rb"}\1", event) if self.hide_usage else event)
        self._rest = buffer[begin:]
        if len(self._rest) > MOST_EVENT_BYTES:
            raise TooLongEventError(f"an event of more than {MOST_EVENT_BYTES:,} bytes")
        return b"".join(passed)

    def _read(self, event: bytes) -> bool:
        """Take what there is to know from an event; false where the client must not see it."""
        data = _data(event)
        if data == _DONE:
            self.ended = True
            return True
        try:
            chunk = _chunks.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return True  # a comment, or a dialect we do not know: the client may
        if chunk.error:
            self.ended, self.error = True, data
        if any(choice.says_something for choice in chunk.choices):
            self.contents += 1
        if chunk.usage is not None:
            self.usage = chunk.usage
            return bool(chunk.choices) or not self.hide_usage
        return True


def _data(event: bytes) -> bytes:
    """The `data` lines of an event, joined as the standard says."""
    lines = event.splitlines()
    return b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))


def usage_of(body: bytes) -> Usage | None:
    """The usage in a whole answer, where it has any."""
    try:
        return _chunks.decode(body).usage
    except (msgspec.DecodeError, RecursionError):
        return None
