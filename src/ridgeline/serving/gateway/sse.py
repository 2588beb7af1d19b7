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
# What only we have asked for. In a string its quotes would be escaped.
_IDS = re.compile(rb',\s?"(?:prompt_)?token_ids":\s?(?:\[[^\]]*\]|null)')
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_DONE = b"[DONE]"
_TOKEN_BYTES = 4
#: More than any request has: what a replica says beyond it is a mistake.
MOST_TOKENS = 2**31


class Details(msgspec.Struct):
    """What of the prompt was found in the replica's cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens, as the replica counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Details | None = None

    @property
    def is_possible(self) -> bool:
        """Whether a request can have used so much, or so little."""
        details = self.prompt_tokens_details
        cached_tokens = (details.cached_tokens or 0) if details else 0
        said = (self.prompt_tokens, self.completion_tokens, cached_tokens)
        return all(0 <= tokens <= MOST_TOKENS for tokens in said)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    finish_reason: str | None = None
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

    With `hide_ids` token ids are kept back too; `ids` has them where the replica tells them.
    `ended` turns true with `[DONE]` or an error event (kept back as `error`): whatever stops before
    was cut, though the answer may be whole already (`finished`). Of the ids, the first `carried`
    were part of the prompt for the replica that went on, so its usage is put right. `contents`
    counts tokens where their ids are told, else events that carry text or tool calls.
    """

    hide_usage: bool
    hide_ids: bool = False
    ended: bool = False
    finished: bool = False
    ids: list[int] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    carried: int = 0
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
                passed.append(self._shown(event))
        self._rest = buffer[begin:]
        if len(self._rest) > MOST_EVENT_BYTES:
            raise TooLongEventError(f"an event of more than {MOST_EVENT_BYTES:,} bytes")
        return b"".join(passed)

    def again(self, carried: int) -> None:
        """Another replica goes on, with so many ids in its prompt; the first one's rest is void."""
        self._rest = b""
        self.ended, self.error = False, b""
        self.carried = carried

    def _shown(self, event: bytes) -> bytes:
        """The event as the client gets it."""
        if b'"usage"' in event:
            if self.hide_usage:
                event = _NO_USAGE.sub(rb"}\1", event)
            elif self.carried and self.usage is not None:
                event = _with_usage(event, self.usage)
        return _IDS.sub(b"", event) if self.hide_ids else event

    def _put_right(self, usage: Usage) -> Usage:
        """The usage of the whole answer, where its last replica took the beginning for prompt."""
        if not self.carried:
            return usage
        return Usage(
            usage.prompt_tokens - self.carried,
            usage.completion_tokens + self.carried,
            usage.prompt_tokens_details,
        )

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
            self.ended, self.error = True, event
            return False
        said = 0
        for choice in chunk.choices:
            if choice.token_ids:
                self.ids += choice.token_ids
                said = len(choice.token_ids)
            elif choice.says_something:
                said = said or 1
            if choice.prompt_token_ids and not self.prompt_ids:
                self.prompt_ids = choice.prompt_token_ids
            self.finished = self.finished or choice.finish_reason is not None
        self.contents += said
        if chunk.usage is not None:
            self.usage = self._put_right(chunk.usage)
            return bool(chunk.choices) or not self.hide_usage
        return True


def _with_usage(event: bytes, usage: Usage) -> bytes:
    """A usage chunk with other numbers."""
    chunk = msgspec.json.decode(_data(event))
    if not isinstance(chunk.get("usage"), dict):
        return event
    total = usage.prompt_tokens + usage.completion_tokens
    chunk["usage"] |= {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": total,
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _data(event: bytes) -> bytes:
    """The `data` lines of an event, joined as the standard says."""
    text = event.strip()
    if text.startswith(b"data:") and b"\n" not in text and b"\r" not in text:
        return text[5:].strip()  # one line, as ever
    lines = event.splitlines()
    return b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))


def is_error(body: bytes) -> bool:
    """Whether a whole answer says nothing but an error; some engines do so with status 200."""
    try:
        chunk = _chunks.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return bool(chunk.error) and not chunk.choices


def usage_of(body: bytes) -> Usage | None:
    """The usage in a whole answer, where it has any."""
    try:
        return _chunks.decode(body).usage
    except (msgspec.DecodeError, RecursionError):
        return None


def guessed_tokens(body: bytes) -> int:
    """Tokens of a whole answer that does not say how many: four bytes of its text for each."""
    try:
        answer = msgspec.json.decode(body)
        choices = answer["choices"]
        texts = [choice.get("text") or choice["message"]["content"] for choice in choices]
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError, AttributeError):
        return 0
    return sum(-(-len(text.encode()) // _TOKEN_BYTES) for text in texts if isinstance(text, str))
