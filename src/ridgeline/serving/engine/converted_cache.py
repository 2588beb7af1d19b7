"""Keeps converted weights between starts, as safetensors files that are mapped, not read.

Law: an entry is whole or it is not there. It is written beside its place and renamed; it is found
only under the exact path, size, time of change and format version of its source, and used only if
it is as long as it must be and holds the tensors it must. Two processes may convert at once: the
last rename wins, both files are the same. A cache that cannot be written is a warning and costs
time only. Called by `gguf_weights`.

    cache_dir / weights / smollm2-...Q4_1-<source>-<state>-bf16.safetensors
                                          path    size, mtime, version
"""

import hashlib
import json
import math
import os
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

# To be raised whenever the same file would be converted to other bytes.
FORMAT_VERSION = 1
# dtype -> (what safetensors calls it, bytes an element)
STORED = {"bf16": ("BF16", 2), "fp32": ("F32", 4)}
ALIGNMENT_BYTES = 64
UNFINISHED = ".unfinished-"
ABANDONED_AFTER_S = 24 * 3600

Shapes = Mapping[str, tuple[int, ...]]
Tensors = Iterator[tuple[str, torch.Tensor]]


class ConvertedCache:
    """The converted weights under one folder."""

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir.expanduser() / "weights"

    def tensors(
        self, source: Path, dtype: str, shapes: Shapes, convert: Callable[[], Tensors]
    ) -> dict[str, torch.Tensor]:
        """What `convert` makes of `source`: from the cache, or made now and then kept.

        `convert` yields every name of `shapes` once, in that order. If the entry cannot be
        written, the tensors are returned from memory with a RuntimeWarning.
        """
        entry = self._folder / entry_name(source, dtype)
        found = _read(entry, shapes, dtype)
        if found is not None:
            return found
        try:
            _write(entry, convert(), shapes, dtype)
            _forget_older(entry)
            found = _read(entry, shapes, dtype)
        except OSError as error:
            warnings.warn(
                f"converted weights are not kept in {self._folder} ({error}); "
                "every start converts them again",
                RuntimeWarning,
                stacklevel=2,
            )
        return dict(convert()) if found is None else found


def entry_name(source: Path, dtype: str) -> str:
    """The file name of a source's conversion; another state of the source, another name."""
    path = source.resolve()
    stat = path.stat()
    state = f"{stat.st_size} {stat.st_mtime_ns} {FORMAT_VERSION}"
    return f"{path.stem}-{_digest(str(path))}-{_digest(state)}-{dtype}.safetensors"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _read(entry: Path, shapes: Shapes, dtype: str) -> dict[str, torch.Tensor] | None:
    """The mapped tensors of a whole entry; None where there is none."""
    head = _head(shapes, dtype)
    try:
        with entry.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes != len(head) + _data_bytes(shapes, dtype) or file.read(len(head)) != head:
                return None
        with safe_open(entry, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in shapes}
    except (OSError, SafetensorError):
        return None


def _write(entry: Path, tensors: Tensors, shapes: Shapes, dtype: str) -> None:
    """Writes tensor by tensor, so that only one at a time is in memory."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=entry.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_head(shapes, dtype))
            for _, tensor in tensors:
                file.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(entry)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _head(shapes: Shapes, dtype: str) -> bytes:
    """The head of the safetensors format: its length, then JSON, padded so that data is aligned."""
    kind, element_bytes = STORED[dtype]
    table = {}
    at = 0
    for name, shape in shapes.items():
        after = at + math.prod(shape) * element_bytes
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, after]}
        at = after
    text = json.dumps(table).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT_BYTES)
    return struct.pack("<Q", len(text)) + text


def _data_bytes(shapes: Shapes, dtype: str) -> int:
    return sum(map(math.prod, shapes.values())) * STORED[dtype][1]


def _forget_older(entry: Path) -> None:
    """Removes conversions of the source's earlier states, and what killed processes left.

    A process that has an older entry mapped keeps it until it ends.
    """
    source, _, dtype = entry.name.rsplit("-", 2)
    older = [
        file
        for file in entry.parent.iterdir()
        if file.name.startswith(f"{source}-") and file.name.endswith(f"-{dtype}") and file != entry
    ]
    abandoned = [file for file in entry.parent.glob(f"{UNFINISHED}*") if _is_abandoned(file)]
    for file in [*older, *abandoned]:
        file.unlink(missing_ok=True)


def _is_abandoned(unfinished: Path) -> bool:
    try:
        return unfinished.stat().st_mtime < time.time() - ABANDONED_AFTER_S
    except FileNotFoundError:  # another process has just renamed it to its place
        return False
