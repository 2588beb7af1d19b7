"""Copies a model's files side by side, each hashed while it is written.

Law: what comes out is hashed from the very bytes that were written, and is on the disk. Never a
hard link to the source: whoever writes into the source later would write into the store. A file
whose content the store has already is linked to that, inside the store.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ridgeline.errors import ModelError
from ridgeline.serving.models.manifest import File
from ridgeline.serving.models.source import Source, SourceFile

#: Told (bytes done, bytes in all), from any thread, one call at a time.
Progress = Callable[[int, int], None]
_PARALLEL = 4
W = TypeVar("W")
R = TypeVar("R")


def silent(done_bytes: int, total_bytes: int) -> None:
    """No progress is told."""


class Present(Protocol):
    """What the store has already."""

    def link(self, sha256: str, size: int, to: Path) -> bool:
        """Have that content at `to` too; False where it is not there."""
        ...

    def has_size(self, size: int) -> bool:
        """Whether it has anything of that size."""
        ...


class Meter:
    """Counts bytes for all threads; `add` raises once one of them has failed."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._done = 0
        self._progress = progress
        self._lock = threading.Lock()
        self.error: BaseException | None = None

    def add(self, count: int) -> None:
        """So many more are done."""
        if self.error is not None:
            raise _StoppedError
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)

    def stop(self, error: BaseException) -> None:
        """No more work is wanted, for the first of these reasons."""
        if self.error is None:
            self.error = error


class _StoppedError(Exception):
    """Another thread has failed; its error is the one that is told."""


@dataclass(frozen=True, slots=True)
class Copy:
    """From `source` to the folder `into`. `expected` has the hashes that are known before."""

    source: Source
    into: Path
    present: Present
    expected: Mapping[str, str]


def copy_files(copy: Copy, files: Sequence[SourceFile], progress: Progress = silent) -> list[File]:
    """The files as they are in `into` now, by path.

    Raises ModelError where one cannot be read, or has another hash than is expected, and OSError
    where one cannot be written; then no thread works on, and `into` has leftovers.
    """
    meter = Meter(sum(one.bytes for one in files), progress)
    largest_first = sorted(files, key=lambda one: -one.bytes)
    return sorted(in_parallel(lambda one: _bring(copy, one, meter), largest_first, meter))


def in_parallel(work: Callable[[W], R], items: Iterable[W], meter: Meter) -> list[R]:
    """The results, in order; the first error, whosever it is, ends all work and is raised."""

    def one(item: W) -> R:
        try:
            return work(item)
        except BaseException as error:
            meter.stop(error)
            raise

    with ThreadPoolExecutor(_PARALLEL) as pool:
        try:
            return list(pool.map(one, items))
        except BaseException as error:  # of a thread, or Ctrl-C
            meter.stop(error)
            assert meter.error is not None
            raise meter.error from None


def hash_file(path: Path, meter: Meter) -> str:
    """A file's hash, read again from the disk."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(4 << 20):
            digest.update(chunk)
            meter.add(len(chunk))
    return digest.hexdigest()


def _bring(copy: Copy, wanted: SourceFile, meter: Meter) -> File:
    to = copy.into / wanted.path
    to.parent.mkdir(parents=True, exist_ok=True)
    known = copy.expected.get(wanted.path)
    if known is None and copy.source.is_local and copy.present.has_size(wanted.bytes):
        # Most likely it is here already: reading costs less than writing what is thrown away.
        known = _hash(copy.source.chunks(wanted.path), meter)
        meter.add(-wanted.bytes)
    if known is not None and copy.present.link(known, wanted.bytes, to):
        meter.add(wanted.bytes)
        return File(wanted.path, wanted.bytes, known)
    written = _write(copy.source.chunks(wanted.path), to, meter)
    size = to.stat().st_size
    if size != wanted.bytes or written != copy.expected.get(wanted.path, written):
        problem = f"{wanted.path} has become another file" if size == wanted.bytes else (
            f"{wanted.path} has {size:,} bytes where {wanted.bytes:,} were told"
        )  # fmt: skip
        remedy = "bring the old one back, or add the new model with `ridgeline models add`"
        raise ModelError(problem, where=copy.source.where, remedy=remedy)
    return File(wanted.path, size, written)


def _hash(chunks: Iterable[bytes], meter: Meter) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        meter.add(len(chunk))
    return digest.hexdigest()


def _write(chunks: Iterable[bytes], to: Path, meter: Meter) -> str:
    digest = hashlib.sha256()
    with to.open("xb", buffering=0) as file:
        for chunk in chunks:
            _write_all(file.fileno(), chunk)
            digest.update(chunk)
            meter.add(len(chunk))
        os.fsync(file.fileno())
    to.chmod(0o444)
    return digest.hexdigest()


def _write_all(handle: int, chunk: bytes) -> None:
    """An unbuffered write may take a part only, as just before the disk is full."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(handle, rest) :]
