"""Finds tool calls in what a model writes, while it writes. Used by the HTTP front; no torch.

A call is a JSON object, bare at the start of the answer (so constrained answers look, and
Llama's) or wrapped anywhere in it (Qwen's, Hermes' and SmolLM2's habit):

    {"name": "get_weather", "arguments": {"city": "Paris"}}
    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls follow each other, within a wrapper, each in its own, or line by line. "parameters"
counts as "arguments". What looks like a call but names no known function is plain content.
"""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
_STRING = r'"(?:[^"\\]|\\.)*"'
_FIRST_KEY = re.compile(rf"\{{\s*({_STRING})\s*:", re.DOTALL)
_NAME = re.compile(rf'\{{\s*"name"\s*:\s*({_STRING})', re.DOTALL)
_HEAD = re.compile(
    rf'\{{\s*"name"\s*:\s*({_STRING})\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{{)', re.DOTALL
)
_STRUCTURE = re.compile(r'["\\{}\[\]]')
_KEYS = ('"name"', '"arguments"', '"parameters"')
_HEAD_CHARS = 1024  # a call's head is short; looking no further keeps `feed` linear


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function the model wants called; `arguments_json` is as it wrote it."""

    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class ContentPiece:
    """Text that belongs to no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of the call at `index`: first its `name`, then (name None) texts of arguments."""

    index: int
    name: str | None
    arguments: str


Piece = ContentPiece | CallPiece


class _Bracket:
    """Finds where a JSON value's outermost bracket closes, fed in pieces."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> int:
        """The position just after the closing bracket, or -1 if it is not in `text`."""
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = _STRUCTURE.search(text, at)
            if found is None:
                return -1
            at = found.end()
            if self._closes(found.group()):
                return at
        return -1

    def _closes(self, mark: str) -> bool:
        if self._in_string:
            self._in_string = mark != '"'
            self._escaped = mark == "\\"
        elif mark == '"':
            self._in_string = True
        elif mark in "{[":
            self._depth += 1
        elif mark in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


class ToolCallStream:
    """Splits one answer into content and calls; `names` are the known functions, None any.

    `feed` text as it comes, then `close`; both return the pieces that are certain by then, in
    order, and the same text however it was cut. The content pieces joined are the answer without
    its calls, exactly, but for blanks before and after a call. A call's name is told once it is
    known to be a function's, its arguments as they come. Nothing checks that the arguments fit
    the function's schema.

        content ──"<tool_call>"──▶ between ──"{"──▶ head ──name known──▶ arguments ──"}"──▶ tail
           ▲                        ▲   │             │                                      │
           └──anything else─────────┼───┘◀──no call───┘                                      │
                                    └────────────────────────────────────────────────────────┘
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        self.calls: list[ToolCall] = []
        self.content = ""
        self._names = names
        self._pieces: list[Piece] = []
        self._held = ""
        self._undecided = ""  # text before `_held` that is dropped with a call, else content
        self._wrapped = False
        self._after_call = False
        self._bracket = _Bracket()
        self._scanned = 0
        self._read: Callable[[], bool] = self._in_content

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` makes certain."""
        self._held += text
        while self._read():
            pass
        return self._told()

    def close(self) -> list[Piece]:
        """What was held back, once no more text comes."""
        rest = self._undecided + self._held
        self._undecided = self._held = ""
        in_call = self._read in (self._in_arguments, self._in_tail)
        if not in_call:
            self._tell_content(rest)
        return self._told()

    def _in_content(self) -> bool:
        if not self.content and not self.calls and self._held.lstrip().startswith("{"):
            self._go(self._in_between, wrapped=False)
            return True
        at = self._held.find(_OPEN)
        ready = at if at >= 0 else len(self._held) - _overlap(self._held, _OPEN)
        text = self._held[:ready].rstrip()  # a blank waits for what it is beside
        self._tell_content(text)
        self._held = self._held[len(text) :]
        if at >= 0:
            start = at - len(text) + len(_OPEN)
            self._undecided, self._held = self._held[:start], self._held[start:]
            self._go(self._in_between, wrapped=True)
        return at >= 0

    def _in_between(self) -> bool:
        """Before an object: the next one, the wrapper's end, or neither."""
        rest = self._held.lstrip()
        if not rest or (self._wrapped and rest != _CLOSE and _CLOSE.startswith(rest)):
            return False
        if rest.startswith("{"):
            self._undecided += self._held[: len(self._held) - len(rest)]
            self._held = rest
            self._go(self._in_head, wrapped=self._wrapped)
        elif self._wrapped and rest.startswith(_CLOSE) and not self._undecided:
            self._held = rest[len(_CLOSE) :]
            self._go(self._in_content, wrapped=False)
        elif self._undecided:
            self._give_up()
        else:
            self._go(self._in_content, wrapped=False)
        return True

    def _in_head(self) -> bool:
        """An object's beginning: wait until it is certainly a call, or certainly none."""
        head = _HEAD.match(self._held[:_HEAD_CHARS])
        if head and (name := self._known(head.group(1))) is not None:
            self._begin(name)
            self._held = self._held[head.end() :]
            self._go(self._in_arguments, wrapped=self._wrapped)
            return True
        if self._is_other_json():
            self._give_up()
            return True
        end = self._bracket.feed(self._held[self._scanned :])
        if end < 0:
            self._scanned = len(self._held)
            return False
        end += self._scanned
        call = _whole(self._held[:end])
        if call is None or self._known(json.dumps(call.name)) is None:
            self._give_up()
            return True
        self._begin(call.name)
        self._tell_arguments(call.arguments_json)
        self._held = self._held[end:]
        self._go(self._in_between, wrapped=self._wrapped)
        return True

    def _in_arguments(self) -> bool:
        end = self._bracket.feed(self._held)
        self._tell_arguments(self._held if end < 0 else self._held[:end])
        self._held = "" if end < 0 else self._held[end:]
        if end < 0:
            return False
        self._go(self._in_tail, wrapped=self._wrapped, depth=1)
        return True

    def _in_tail(self) -> bool:
        """After the arguments: the call's closing brace; further keys are skipped."""
        end = self._bracket.feed(self._held)
        self._held = "" if end < 0 else self._held[end:]
        if end < 0:
            return False
        self._go(self._in_between, wrapped=self._wrapped)
        return True

    def _go(self, read: Callable[[], bool], *, wrapped: bool, depth: int = 0) -> None:
        self._read = read
        self._wrapped = wrapped
        self._bracket = _Bracket(depth)
        self._scanned = 0

    def _give_up(self) -> None:
        """It was no call: all of it is content, and content goes on."""
        text, self._undecided, self._held = self._undecided + self._held, "", ""
        # The first character is told alone, so that a wrapper later in `text` is still found.
        start = len(_OPEN) if text.lstrip().startswith(_OPEN) else 1
        start += len(text) - len(text.lstrip())
        self._tell_content(text[:start])
        self._held = text[start:]
        self._go(self._in_content, wrapped=False)

    def _is_other_json(self) -> bool:
        """Whether the object already shows that it is no call, so that it need not be held."""
        head = self._held[:_HEAD_CHARS]
        start = head[1:].lstrip()
        if start and start[0] != '"':
            return True
        first = _FIRST_KEY.match(head)
        name = _NAME.match(head)
        return bool(
            (first and first.group(1) not in _KEYS) or (name and self._known(name.group(1)) is None)
        )

    def _known(self, quoted: str) -> str | None:
        try:
            name = json.loads(quoted)
        except ValueError:
            return None
        return name if self._names is None or name in self._names else None

    def _told(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _begin(self, name: str) -> None:
        self._undecided = ""
        self._pieces.append(CallPiece(len(self.calls), name, ""))
        self.calls.append(ToolCall(name, ""))
        self._after_call = True

    def _tell_arguments(self, text: str) -> None:
        if text:
            last = self.calls[-1]
            self.calls[-1] = ToolCall(last.name, last.arguments_json + text)
            self._pieces.append(CallPiece(len(self.calls) - 1, None, text))

    def _tell_content(self, text: str) -> None:
        if self._after_call:
            text = text.lstrip()
        if text:
            self._after_call = False
            self.content += text
            self._pieces.append(ContentPiece(text))


def parse_tool_calls(text: str, names: Collection[str] | None = None) -> list[ToolCall] | None:
    """The calls in a whole answer, or None if there are none or one is not whole, valid JSON.

    The content beside them, if wanted, is `ToolCallStream.content` after feeding it `text`.
    """
    stream = ToolCallStream(names)
    stream.feed(text)
    stream.close()
    if stream.calls and all(_is_object(call.arguments_json) for call in stream.calls):
        return stream.calls
    return None


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _whole(text: str) -> ToolCall | None:
    """A call whose keys come in another order, or whose arguments are missing or quoted."""
    try:
        call: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name, arguments = call.get("name"), call.get("arguments", call.get("parameters", {}))
    if not isinstance(name, str):
        return None
    if isinstance(arguments, str) and _is_object(arguments):
        return ToolCall(name, arguments)
    if isinstance(arguments, dict):
        return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
    return None
