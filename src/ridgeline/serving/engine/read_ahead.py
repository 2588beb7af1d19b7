"""Reads weights into memory while the engine imports, so that the disk does not idle meanwhile.

Law: it only ever saves time. What is in memory already is not read, files of over half of the
memory are left alone, what cannot be read is for the load to complain about, and no torch is
imported here. Several threads read: disks answer several requests at once faster than one by one.
Called by `process` and `embedding_front` before torch; `RIDGELINE_READ_AHEAD=0` switches it off.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ridgeline.serving.engine.config import EngineConfig

VARIABLE = "RIDGELINE_READ_AHEAD"
THREADS = 4
_CHUNK_BYTES = 2 << 20

#: A file, and where in it to read.
Chunk = tuple[Path, int]


def read_ahead(config: EngineConfig) -> list[threading.Thread]:
    """Begin, and return at once; the threads end by themselves."""
    if os.environ.get(VARIABLE) == "0" or not hasattr(os, "preadv"):
        return []
    try:
        sizes = {file: file.stat().st_size for file in weight_files(config)}
    except OSError:
        return []
    if sum(sizes.values()) > _memory_bytes() / 2:
        return []
    chunks, lock = _chunks(sizes), threading.Lock()
    threads = [
        threading.Thread(target=_read, args=(chunks, lock), name="read-ahead", daemon=True)
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    return threads


def weight_files(config: EngineConfig) -> list[Path]:
    """What the load will read: converted weights where there are some, else the model's own."""
    model = config.model.expanduser()
    if model.is_dir():
        return sorted(model.glob("*.safetensors"))
    stored = "fp32" if config.dtype == "fp32" else "bf16"
    converted: Sequence[Path] = ()
    if config.cache_dir is not None:  # named as `converted_cache.entry_name` does
        kept = config.cache_dir.expanduser() / "weights"
        converted = sorted(kept.glob(f"{model.stem}-*-{stored}.safetensors"))
    return list(converted) or ([model] if model.is_file() else [])


def _chunks(sizes: Mapping[Path, int]) -> Iterator[Chunk]:
    for file, size_bytes in sizes.items():
        for offset in range(0, size_bytes, _CHUNK_BYTES):
            yield file, offset


def _read(chunks: Iterator[Chunk], lock: threading.Lock) -> None:
    """Take chunks until there are none."""
    buffer = bytearray(_CHUNK_BYTES)
    while True:
        with lock:
            chunk = next(chunks, None)
        if chunk is None:
            return
        file, offset = chunk
        try:
            with file.open("rb", buffering=0) as opened:
                if not _is_resident(opened.fileno(), offset):
                    os.preadv(opened.fileno(), [buffer], offset)
        except OSError:
            return  # the load meets it too, and says what is wrong


def _is_resident(descriptor: int, offset: int) -> bool:
    """Whether a read there would not wait; no, where the system does not say."""
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) > 0
    except (OSError, AttributeError):
        return False


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
