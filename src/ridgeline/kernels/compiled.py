"""Compiles the kernels with numba, and keeps the result, so that a second start compiles nothing.

The law of this file: a kept kernel is never stale. numba compares only the file that defines a
function with what it kept, but an instruction emitted by `simd` ends up in `cpu`'s machine code;
so the folder's name covers the text of all kernel files. numba itself tells processors apart.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba

from ridgeline.paths import cache_home

P = ParamSpec("P")
R = TypeVar("R")

# Contraction and reordering let LLVM use vectors; infinities and NaN keep their meaning.
_RELAXED = {"contract", "nsz", "reassoc"}


def kernel_cache() -> Path | None:
    """Where compiled kernels are kept; None where no folder can be written.

    Under NUMBA_CACHE_DIR where that is set, else in our own cache.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(file.read_bytes() for file in sources), digest_size=8)
    named = os.environ.get("NUMBA_CACHE_DIR")
    folder = (Path(named) if named else cache_home() / "kernels") / digest.hexdigest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


_FOLDER = kernel_cache()
_SETTINGS: Any = numba.config


def compiled(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: compile at the first call for each kind of argument, or load what was kept."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # numba reads this setting when a function is decorated; others' functions keep their own.
        before = _SETTINGS.CACHE_DIR
        _SETTINGS.CACHE_DIR = str(_FOLDER or "")
        try:
            make: Callable[[Callable[P, R]], Callable[P, R]] = numba.njit(
                cache=_FOLDER is not None, error_model="numpy", fastmath=_RELAXED, **options
            )
            return make(function)
        finally:
            _SETTINGS.CACHE_DIR = before

    return decorate
