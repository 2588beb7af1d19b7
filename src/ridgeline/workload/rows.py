"""The rows of a file, whatever packs it: CSV, JSON lines, or one list of JSON, told by its content.

Nothing is held but the row that is read, and no row may be so long, or so many, that a small packed
file could fill the memory. Callers get SpecError with the line for whatever is wrong.
"""

import csv
import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, cast

from ridgeline.errors import SpecError

MOST_ROW_CHARS = 16 << 20
MOST_ROWS = 20_000_000
_CHUNK_CHARS = 1 << 16
_GZIP, _XZ, _ZSTD, _ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"

Row = dict[str, Any]
#: Where a row begins, in words for errors, and its fields.
Numbered = tuple[str, Row]


@contextmanager
def unpacked(path: Path, where: str) -> Iterator[BufferedReader]:
    """The bytes of a file, plain or packed by gzip or xz. SpecError where it cannot be read."""
    try:
        with path.open("rb") as raw:
            head = raw.peek(8)
            if head.startswith((_ZSTD, _ZIP)):
                raise SpecError(
                    f"{path} is packed in a way that is not read",
                    where=where,
                    remedy="unpack it, or pack it with gzip or xz",
                )
            if head.startswith(_GZIP):
                with gzip.GzipFile(fileobj=raw) as packed:
                    yield BufferedReader(packed)
            elif head.startswith(_XZ):
                with lzma.LZMAFile(raw) as packed_more:
                    yield BufferedReader(cast("Any", packed_more))
            else:
                yield raw
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            where=where,
            remedy="a file that is there; `example` is a trace that ships with Ridgeline",
        ) from error


def as_text(file: BufferedReader) -> TextIOWrapper:
    """The same as text, to be closed by whoever asked for it."""
    return TextIOWrapper(file, encoding="utf-8-sig", newline="")


def rows_of(
    text: TextIOWrapper, path: Path, seen: Callable[[Row, str], object] = lambda *_: None
) -> Iterator[Numbered]:
    """Its rows. SpecError for the first that is none.

    `seen` is told of the columns of a CSV file and where they stand, before any row is read.
    """
    for number, line in enumerate(_lines(text, path), 1):
        begins = line.lstrip()[:1]
        if begins == "[":
            yield from _list_rows(line, text, path)
        elif begins == "{":
            yield from _json_rows(number, line, text, path)
        elif begins:
            names = _columns(line, path, f"line {number}")
            seen(dict.fromkeys(names), f"{path}, line {number}")
            yield from _csv_rows(number, names, text, path)


def _lines(text: TextIOWrapper, path: Path, first: int = 1) -> Iterator[str]:
    for number in range(first, first + MOST_ROWS + 1):
        line = text.readline(MOST_ROW_CHARS)
        if not line:
            return
        whole = len(line) < MOST_ROW_CHARS or line.endswith("\n")
        # A list in one line is read in pieces, and has bounds of its own.
        if not whole and (number > 1 or not line.lstrip().startswith("[")):
            raise _wrong(path, f"line {number}", f"is longer than {MOST_ROW_CHARS:,} letters")
        yield line
    raise _wrong(path, f"line {first + MOST_ROWS}", f"is over the {MOST_ROWS:,} lines there may be")


def _json_rows(first: int, line: str, text: TextIOWrapper, path: Path) -> Iterator[Numbered]:
    yield f"line {first}", _object(line, path, f"line {first}")
    for number, line in enumerate(_lines(text, path, first + 1), first + 1):
        if line.strip():
            yield f"line {number}", _object(line, path, f"line {number}")


def _object(line: str, path: Path, place: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise _wrong(path, place, "is not a JSON object")
    return row


def _list_rows(held: str, text: TextIOWrapper, path: Path) -> Iterator[Numbered]:
    """The objects of one JSON list, of which a piece at a time is held."""
    decoder = json.JSONDecoder()
    at, number = held.index("[") + 1, 0
    while True:
        while at < len(held) and held[at] in " \t\r\n,":
            at += 1
        if held[at : at + 1] == "]":
            return
        place = f"row {number + 1}"
        if held[at : at + 1] not in ("", "{"):
            raise _wrong(path, place, "is not a JSON object")
        try:
            row, at = decoder.raw_decode(held, at)
        except (ValueError, RecursionError):
            held, at = held[at:], 0
            more = text.read(max(_CHUNK_CHARS, len(held)))  # twice as much: no row is read often
            if not more or len(held) > MOST_ROW_CHARS:
                raise _wrong(path, place, "is torn or too long") from None
            held += more
            continue
        number += 1
        if number > MOST_ROWS:
            raise _wrong(path, place, f"is over the {MOST_ROWS:,} rows there may be")
        yield place, row


def _columns(line: str, path: Path, place: str) -> list[str]:
    try:
        names = next(csv.reader([line]), [])
    except csv.Error as error:
        raise _wrong(path, place, f"is not CSV: {error}") from error
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _wrong(path, place, f"names the column {twice[:40]!r} twice")
    return names


def _csv_rows(first: int, names: list[str], text: TextIOWrapper, path: Path) -> Iterator[Numbered]:
    reader = csv.reader(_lines(text, path, first + 1))
    while True:
        place = f"line {first + reader.line_num + 1}"
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise _wrong(path, place, f"is not CSV: {error}") from error
        if values is None:
            return
        if not values or values == names:  # blank, or files that were put one behind another
            continue
        if len(values) != len(names):
            raise _wrong(path, place, f"has {len(values)} fields of {len(names)}")
        yield place, dict(zip(names, values, strict=True))


def _wrong(path: Path, place: str, problem: str) -> SpecError:
    return SpecError(problem, where=f"{path}, {place}")
