"""Locks between processes, as files. The kernel frees them with their holder, kill -9 included.

A lock's file may be removed by whoever holds it alone: who waited for the old file asks again.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def nobody_hears() -> None:
    """For those who need not know that they wait."""


@contextmanager
def locked(
    file: Path, *, shared: bool = False, waiting: Callable[[], None] = nobody_hears
) -> Iterator[None]:
    """Hold the lock, alone or `shared`; `waiting` is called once where somebody else has it."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    handle = _held(file, kind, waiting)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def if_free(file: Path) -> Iterator[bool]:
    """Hold the lock alone if nobody has it; says whether that is so. Never waits."""
    handle = _open(file)
    try:
        yield _now(handle, fcntl.LOCK_EX) and _is_there(file, handle)
    finally:
        os.close(handle)


def _held(file: Path, kind: int, waiting: Callable[[], None]) -> int:
    while True:
        handle = _open(file)
        try:
            if not _now(handle, kind):
                waiting()
                fcntl.flock(handle, kind)
            if _is_there(file, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT, 0o666)


def _now(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(file: Path, handle: int) -> bool:
    """Whether what we hold is still the file of that name."""
    with suppress(FileNotFoundError):
        return file.stat().st_ino == os.fstat(handle).st_ino
    return False
