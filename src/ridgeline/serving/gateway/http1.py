"""An answer in HTTP/1.1, read as it comes: its header, then its body freed of its framing.

Sans I/O: bytes go in, an `Incoming` and its body's bytes come out (RFC 9112). What could be read in
two ways is refused, since a replica whose answer ends elsewhere than we think would answer the next
client with the rest. `connections` is the caller; one reader reads one answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from multidict import CIMultiDict

MOST_HEAD_BYTES = 64 * 1024
_MOST_LINE_BYTES = 4096  # of a chunk's size with its extensions
_WORST = frozenset(b"\r\n\0")
_Step = Callable[["AnswerReader", bytes, int], int]
_HEX = frozenset(b"0123456789abcdefABCDEF")
_NAME = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class NotHttpError(Exception):
    """What came is not an answer in HTTP/1.1, or not one that can be read in one way only."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """An answer's status and header; whether the connection can be used again after it."""

    status: int
    headers: CIMultiDict[str]
    keeps: bool


@dataclass(slots=True)
class AnswerReader:
    """One answer. `incoming` is None until its header is whole, `ended` true once all of it is.

    `_step` reads what the next byte belongs to: it takes the bytes and a place in them, and gives
    the place after what it read, or -1 where that is not all here yet. None at the end.
    """

    incoming: Incoming | None = None
    _step: "_Step | None" = field(default_factory=lambda: AnswerReader._head)
    _left: int = 0  # of the sized body or the chunk
    _rest: bytes = b""
    _body: list[bytes] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the answer is here to its last byte."""
        return self._step is None

    @property
    def clean(self) -> bool:
        """Whether it ended, and nothing came after it that nobody asked for."""
        return self._step is None and not self._rest

    def feed(self, data: bytes) -> bytes:
        """The part of the body that these bytes hold. Raises NotHttpError."""
        buffer = self._rest + data if self._rest else data
        place = 0
        while (step := self._step) is not None:
            after = step(self, buffer, place)
            if after < 0:
                break
            place = after
        self._rest = buffer[place:]
        body, self._body = self._body, []
        return body[0] if len(body) == 1 else b"".join(body)

    def feed_eof(self) -> bool:
        """The connection has ended; whether the answer is whole."""
        if self._step is AnswerReader._to_close:
            self._step = None
        return self.ended

    def _head(self, buffer: bytes, place: int) -> int:
        end = buffer.find(b"\r\n\r\n", place)
        if (end if end >= 0 else len(buffer)) - place > MOST_HEAD_BYTES:
            raise NotHttpError("its header is too long")
        if end < 0:
            return -1
        incoming = read_head(buffer[place:end])
        if incoming.status >= 200:  # those below announce that the answer follows
            self._begin(incoming)
        return end + 4

    def _begin(self, incoming: Incoming) -> None:
        """The header is whole: how the body is framed (RFC 9112, section 6.3)."""
        headers = incoming.headers
        coding = headers.getall("Transfer-Encoding", [])
        lengths = headers.getall("Content-Length", [])
        keeps = incoming.keeps
        if incoming.status in (204, 304):
            self._step = None
        elif coding:
            if [one.strip().lower() for one in coding] != ["chunked"]:
                raise NotHttpError(f"its body is coded as {', '.join(coding)}")
            self._step, keeps = AnswerReader._size, keeps and not lengths
        elif lengths:
            length = lengths[0].strip()
            digits = length.isascii() and length.isdigit() and len(length) < 19
            if len(set(lengths)) > 1 or not digits:
                raise NotHttpError(f"its length is {', '.join(lengths)}")
            self._left = int(length)
            self._step = AnswerReader._sized if self._left else None
        else:
            self._step, keeps = AnswerReader._to_close, False
        self.incoming = Incoming(incoming.status, headers, keeps)

    def _sized(self, buffer: bytes, place: int) -> int:
        after = self._take(buffer, place)
        if not self._left:
            self._step = None
        return after

    def _chunk(self, buffer: bytes, place: int) -> int:
        after = self._take(buffer, place)
        if not self._left:
            self._step = AnswerReader._chunk_end
        return after

    def _take(self, buffer: bytes, place: int) -> int:
        piece = buffer[place : place + self._left]
        if not piece:
            return -1
        self._body.append(piece)
        self._left -= len(piece)
        return place + len(piece)

    def _size(self, buffer: bytes, place: int) -> int:
        end = buffer.find(b"\r\n", place)
        if (end if end >= 0 else len(buffer)) - place > _MOST_LINE_BYTES:
            raise NotHttpError("a chunk's first line is too long")
        if end < 0:
            return -1
        size = buffer[place:end].partition(b";")[0].rstrip(b" \t")
        if not size or len(size) > 15 or not _HEX.issuperset(size):
            raise NotHttpError(f"a chunk's size is {size[:40]!r}")
        self._left = int(size, 16)
        begin, after = end + 2, end + 2 + self._left
        if self._left and buffer[after : after + 2] == b"\r\n":  # as ever: here in one piece
            self._body.append(buffer[begin:after])
            return after + 2
        self._step = AnswerReader._chunk if self._left else AnswerReader._trailer
        return begin

    def _chunk_end(self, buffer: bytes, place: int) -> int:
        if len(buffer) < place + 2:
            return -1
        if buffer[place : place + 2] != b"\r\n":
            raise NotHttpError("a chunk is longer than it says")
        self._step = AnswerReader._size
        return place + 2

    def _trailer(self, buffer: bytes, place: int) -> int:
        """Fields after the body, which nobody wants; an empty line is the end."""
        end = buffer.find(b"\r\n", place)
        if (end if end >= 0 else len(buffer)) - place > MOST_HEAD_BYTES:
            raise NotHttpError("its trailer is too long")
        if end == place:
            self._step = None
        return end + 2 if end >= 0 else -1

    def _to_close(self, buffer: bytes, place: int) -> int:
        if place == len(buffer):
            return -1
        self._body.append(buffer[place:])
        return len(buffer)


def read_head(head: bytes) -> Incoming:
    """A status line and the fields below it, without the empty line. Raises NotHttpError."""
    lines = head.split(b"\r\n")
    version, _, rest = lines[0].partition(b" ")
    status = rest[:3]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not _is_status(status, rest[3:4]):
        raise NotHttpError(f"it begins with {lines[0][:60]!r}")
    headers = CIMultiDict[str]()
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or not _NAME.issuperset(name):
            raise NotHttpError(f"its header has the line {line[:60]!r}")
        if not _WORST.isdisjoint(value):
            raise NotHttpError(f"its field {name[:60]!r} holds a line break")
        headers.add(name.decode(), value.strip(b" \t").decode("utf-8", "surrogateescape"))
    said = headers.get("Connection", "").lower()
    keeps = "close" not in said and (version == b"HTTP/1.1" or "keep-alive" in said)
    return Incoming(int(status), headers, keeps)


def _is_status(status: bytes, after: bytes) -> bool:
    known = len(status) == 3 and status.isdigit() and b"200" <= status < b"600"
    announced = len(status) == 3 and status.isdigit() and status[:1] == b"1" and status != b"101"
    return (known or announced) and after in (b"", b" ")
