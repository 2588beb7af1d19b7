"""Reads the head of a GGUF file: its metadata, and where each tensor lies.

Law: nothing is believed before it is checked against the file's size, and every complaint is a
ModelError. Written here since `gguf.GGUFReader` makes an array for every one of 98,000 strings
(decisions/0006 has the times); a test holds the two against each other. Knows no torch, no numpy.

    | magic, version, counts | key type value | ... | name shape type offset | ... | pad | data |

Source of the layout: the GGUF specification in ggml's repository, versions 2 and 3.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ridgeline.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Type numbers of metadata values -> struct letter.
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
STRING, ARRAY = 8, 9
MOST_DIMENSIONS = 4
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: row-major shape, GGML type number, first byte in the file."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHead:
    """All that a GGUF file says before its data."""

    path: Path
    size_bytes: int
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]


class _TornError(Exception):
    """What the file says does not fit into the file."""


def read_head(path: Path) -> GgufHead:
    """Reads metadata and tensor table; raises ModelError where the file is torn or foreign."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ModelError(
                "not a GGUF file (it does not begin with GGUF)",
                where=str(path),
                remedy="a GGUF file, or a folder with config.json and safetensors",
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(path, data)


def _read(path: Path, data: mmap.mmap) -> GgufHead:
    cursor = _Cursor(data, len(MAGIC))
    try:
        version = cursor.number("I")
        if version not in VERSIONS:
            _refuse_version(path, version)
        tensor_count, field_count = cursor.number("Q"), cursor.number("Q")
        metadata = {}
        for _ in range(field_count):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.number("I"))
        tensors = _tensor_table(cursor, tensor_count, int(metadata.get("general.alignment", 32)))
    except (_TornError, struct.error, ValueError, TypeError) as error:
        raise ModelError(
            f"the file is torn: {error}", where=str(path), remedy="download the file again"
        ) from error
    return GgufHead(path, len(data), metadata, tensors)


def _refuse_version(path: Path, version: int) -> NoReturn:
    big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
    raise ModelError(
        "big-endian GGUF files are not supported" if big_endian else f"GGUF version {version}",
        where=str(path),
        remedy="a GGUF file of version 2 or 3, little-endian, as llama.cpp writes them today",
    )


def _tensor_table(cursor: "_Cursor", count: int, alignment: int) -> dict[str, StoredTensor]:
    rows = []
    for _ in range(count):
        name = cursor.string()
        dimensions = cursor.number("I")
        if dimensions > MOST_DIMENSIONS:
            raise _TornError(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]
        rows.append((name, shape, cursor.number("I"), cursor.number("Q")))
    if alignment <= 0 or alignment & (alignment - 1):
        raise _TornError(f"an alignment of {alignment} bytes")
    start = -(-cursor.at // alignment) * alignment
    return {
        name: StoredTensor(name, shape, type_id, start + offset)
        for name, shape, type_id, offset in rows
    }


class _Cursor:
    """Reads onwards through the file, and never beyond its end."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data = data
        self.at = at

    def number(self, letter: str) -> Any:
        (value,) = struct.unpack_from(f"<{letter}", self._data, self.at)
        self.at += struct.calcsize(f"<{letter}")
        return value

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        data, at, end = self._data, self.at, len(self._data)
        found = []
        for _ in range(count):
            (size_bytes,) = LENGTH.unpack_from(data, at)
            at += LENGTH.size + size_bytes
            if at > end:
                raise _TornError(f"a string of {size_bytes} bytes ends beyond the file")
            found.append(str(data[at - size_bytes : at], "utf-8"))
        self.at = at
        return found

    def value(self, type_id: int) -> Any:
        if type_id == STRING:
            return self.string()
        if type_id == ARRAY:
            return self._array(self.number("I"), self.number("Q"))
        if type_id in NUMBERS:
            return self.number(NUMBERS[type_id])
        raise _TornError(f"a metadata value of unknown type {type_id}")

    def _array(self, type_id: int, count: int) -> list[Any]:
        if type_id == STRING:
            return self.strings(count)
        if type_id not in NUMBERS:
            raise _TornError(f"an array of type {type_id}")
        size_bytes = count * struct.calcsize(f"<{NUMBERS[type_id]}")
        if self.at + size_bytes > len(self._data):
            raise _TornError(f"an array of {count} numbers ends beyond the file")
        found = list(struct.unpack_from(f"<{count}{NUMBERS[type_id]}", self._data, self.at))
        self.at += size_bytes
        return found
