"""Whether a model's files are whole as far as they say so themselves.

A download that broke off looks like a file. It must not become a version: its id would be right for
ever, and no engine could load it. Checked before a version can be found, at its copy.
"""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ridgeline.errors import ModelError
from ridgeline.serving.models.manifest import ONLY_FILE

_INDEX = ".safetensors.index.json"
_MOST_HEAD_BYTES = 100_000_000
_AGAIN = "download the model again"


def check_whole(folder: Path, paths: Iterable[str], *, where: str) -> None:
    """ModelError for the first file that is torn, or that another one names and is not there."""
    there = set(paths)
    for path in sorted(there):
        problem = _problem(folder / path, path, there)
        if problem:
            named = problem if path == ONLY_FILE else f"{path}: {problem}"
            raise ModelError(named, where=where, remedy=_AGAIN)


def _problem(file: Path, path: str, there: set[str]) -> str:
    if path.endswith(".safetensors"):
        return _safetensors(file)
    if path.endswith(".gguf"):
        return "" if _begins(file, 4) == b"GGUF" else "is no GGUF file"
    if path.endswith(_INDEX):
        return _index(file, path, there)
    if path == "config.json" and not isinstance(_json(file), dict):
        return "is not a JSON object"
    return ""


def _safetensors(file: Path) -> str:
    """Its head says where the last tensor ends; there the file ends."""
    size = file.stat().st_size
    begin = _begins(file, 8)
    (head_bytes,) = struct.unpack("<Q", begin) if len(begin) == 8 else (0,)
    if not 2 <= head_bytes <= min(size - 8, _MOST_HEAD_BYTES):
        return "torn weights: its head is not whole"
    with file.open("rb") as opened:
        opened.seek(8)
        head = _parsed(opened.read(head_bytes))
    try:
        ends = [one["data_offsets"][1] for name, one in head.items() if name != "__metadata__"]
        wanted = 8 + head_bytes + max(ends, default=0)
    except (AttributeError, TypeError, KeyError, IndexError):
        return "torn weights: its head is not as it should be"
    return "" if size == wanted else f"torn weights: {size:,} bytes of {wanted:,}"


def _index(file: Path, path: str, there: set[str]) -> str:
    told = _json(file)
    placed = told.get("weight_map") if isinstance(told, dict) else None
    if not isinstance(placed, dict):
        return "has no weight_map"
    folder = path.rpartition("/")[0]
    named = {f"{folder}/{name}" if folder else str(name) for name in placed.values()}
    missing = sorted(named - there)
    return f"{missing[0]} is missing" if missing else ""


def _begins(file: Path, count: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(count)


def _json(file: Path) -> Any:
    return _parsed(file.read_bytes())


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
