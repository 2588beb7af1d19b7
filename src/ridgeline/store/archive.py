"""The file of a backup: rows of tables as text, which says of itself whether it is whole.

gzip of JSON lines, the same from every database:

    {"ridgeline": "backup", "format": 1, "schema": "0001", "written_ns": 1700000000000000000}
    {"table": "tenants", "columns": ["name", "weight"]}
    ["chat", 1.0]                                            one line for each row
    {"rows": 1, "sha256": "0f3a…"}                           of every line before this one
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.errors import StoreError

_FORMAT = 1

Row = list[Any]


@dataclass(frozen=True, slots=True)
class Head:
    """Which tables an archive is of, and when it was written."""

    schema: str
    written_ns: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one table."""

    table: str
    columns: tuple[str, ...]
    rows: list[Row]


def write_archive(file: Path, head: Head, parts: Iterable[Rows]) -> int:
    """Write a new file, for its owner only, and give the number of rows.

    The file appears under its name when it is whole and on the disk.
    """
    if file.exists():
        raise StoreError("is there already", where=str(file), remedy="name another file")
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with _packed(unfinished) as out:
            rows = _write(out, head, parts)
        unfinished.rename(file)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise StoreError(problem, where=str(file), remedy="make room, or name another") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _write(out: gzip.GzipFile, head: Head, parts: Iterable[Rows]) -> int:
    digest, rows, table = hashlib.sha256(), 0, ""

    def line(value: object) -> None:
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        digest.update(data)
        out.write(data)

    line({"ridgeline": "backup", "format": _FORMAT, **_as_dict(head)})
    for part in parts:
        if part.table != table:
            line({"table": part.table, "columns": part.columns})
            table = part.table
        for row in part.rows:
            line(row)
        rows += len(part.rows)
    line({"rows": rows, "sha256": digest.hexdigest()})
    return rows


def _as_dict(head: Head) -> dict[str, Any]:
    return {"schema": head.schema, "written_ns": head.written_ns}


@contextmanager
def _packed(file: Path) -> Iterator[gzip.GzipFile]:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as raw:
        with gzip.open(raw, "wb", compresslevel=6) as out:
            yield out
        raw.flush()
        os.fsync(raw.fileno())


class Reader:
    """An archive while it is read. Believe its rows only when `parts` has come to its end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines = self._unpacked()
        self._digest = hashlib.sha256()
        self.head = self._head()

    def parts(self, most_rows: int = 1000) -> Iterator[Rows]:
        """The rows in pieces, in their order; StoreError at the first thing that is wrong."""
        part, rows = Rows("", (), []), 0
        while True:
            before = self._digest.hexdigest()
            value = self._next()
            if isinstance(value, list) and len(value) == len(part.columns):
                part.rows.append(value)
                rows += 1
                if len(part.rows) < most_rows:
                    continue
            if part.rows:
                yield part
            match value:
                case list() if len(value) == len(part.columns):
                    part = Rows(part.table, part.columns, [])
                case {"table": str(table), "columns": [*columns]}:
                    part = Rows(table, tuple(map(str, columns)), [])
                case {"rows": int(said), "sha256": str(digest)} if (said, digest) == (rows, before):
                    return
                case _:
                    raise self._torn("its rows are not those that were written")

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()

    def _head(self) -> Head:
        match self._next():
            case {
                "ridgeline": "backup",
                "format": int(form),
                "schema": str(schema),
                "written_ns": int(ns),
            }:
                if form != _FORMAT:
                    raise newer(self.file, f"format {form}")
                return Head(schema, ns)
        remedy = "name a file that `ridgeline store backup` wrote"
        raise StoreError("is no backup of Ridgeline's", where=str(self.file), remedy=remedy)

    def _next(self) -> Any:
        line = next(self._lines, None)
        if line is None:
            raise self._torn("its end is missing")
        self._digest.update(line)
        try:
            return json.loads(line)
        except ValueError as error:
            raise self._torn("a line of it is no JSON") from error

    def _unpacked(self) -> Generator[bytes, None, None]:
        try:
            with gzip.open(self.file, "rb") as packed:
                yield from packed
        except FileNotFoundError as error:
            raise StoreError("is not there", where=str(self.file)) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._torn(str(error)) from error
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", where=str(self.file)) from error

    def _torn(self, problem: str) -> StoreError:
        remedy = "restore another backup; this file must not be believed"
        return StoreError(f"is torn or changed: {problem}", where=str(self.file), remedy=remedy)


def newer(file: Path, what: str) -> StoreError:
    """The complaint about an archive that this version cannot know."""
    return StoreError(
        f"is of a newer version ({what})",
        where=str(file),
        remedy="restore it with the version that wrote it, or a newer one",
    )
