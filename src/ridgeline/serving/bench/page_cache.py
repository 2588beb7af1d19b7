"""Files and the memory that the system keeps them in: drop it, see what is there, time a read.

Law: what was dropped is not believed but looked at (`resident_share`); a page that some process has
mapped stays. Called by `cold_start`.
"""

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_CHUNK_BYTES = 4 << 20
_SAMPLES = 64


def drop(files: Iterable[Path]) -> None:
    """Ask the system to forget what it holds of these files; where it cannot, nothing happens."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(file: Path) -> float | None:
    """The share of a file that is in memory, by samples; None where the system does not say."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    size_bytes = file.stat().st_size
    if not size_bytes:
        return None
    # From the end, so that the system does not take it for a read that goes on.
    offsets = range(0, size_bytes, max(1, size_bytes // _SAMPLES))[::-1]
    try:
        with file.open("rb", buffering=0) as opened:
            there = [_is_resident(opened.fileno(), offset) for offset in offsets]
    except OSError:  # a file system that knows no such read
        return None
    return sum(there) / len(there)


def read_bytes_per_s(files: Iterable[Path], threads: int = 1) -> float:
    """Read whole files once, each cut into as many runs as there are threads."""
    runs = [run for file in files for run in _runs(file, threads)]
    began_s = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        read = sum(pool.map(lambda run: _read(*run), runs))
    return read / max(time.perf_counter() - began_s, 1e-9)


def _is_resident(descriptor: int, offset: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def _runs(file: Path, threads: int) -> list[tuple[Path, int, int]]:
    size_bytes = file.stat().st_size
    run_bytes = -(-size_bytes // threads)
    cuts = range(0, size_bytes, run_bytes) if run_bytes else []
    return [(file, start, min(start + run_bytes, size_bytes)) for start in cuts]


def _read(file: Path, start: int, end: int) -> int:
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    at = start
    with file.open("rb", buffering=0) as opened:
        while at < end:
            got = os.preadv(opened.fileno(), [buffer[: min(_CHUNK_BYTES, end - at)]], at)
            if not got:
                break
            at += got
    return at - start
