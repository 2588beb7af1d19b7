"""Finds the compiled kernels, loads them, and says what they can do on this processor.

The law of this file: a library that is not there is no error (`portable` serves), one that does not
fit this package is. `native_decoder` and `native_draws` call the functions; `build` makes the file.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

from ridgeline.errors import ModelError

ABI = 1
"""RL_ABI of native/abi.h: raised whenever a struct or a function changes."""


def library_path() -> Path:
    """Where the library lies, or would lie; RIDGELINE_KERNEL_LIBRARY names another."""
    named = os.environ.get("RIDGELINE_KERNEL_LIBRARY")
    ending = "dylib" if sys.platform == "darwin" else "so"
    return Path(named) if named else Path(__file__).parent / "native" / f"libridgeline.{ending}"


@cache
def library() -> ctypes.CDLL | None:
    """The loaded library; None where none was built.

    Raises ModelError where it belongs to another version of this package, or cannot be loaded.
    """
    path = library_path()
    if not path.is_file():
        return None
    remedy = "`pip install` this package again (`make setup` in a checkout)"
    try:
        loaded = ctypes.CDLL(str(path))
        found = loaded.rl_abi()
    except (OSError, AttributeError) as error:
        raise ModelError(
            f"the kernels cannot be loaded: {error}", where=str(path), remedy=remedy
        ) from error
    if found != ABI:
        raise ModelError(
            f"the kernels speak version {found} of their interface, not {ABI}",
            where=str(path),
            remedy=remedy,
        )
    return loaded


def levels() -> list[str]:
    """The instruction sets that both the library and this processor have, best first."""
    loaded = library()
    if loaded is None:
        return []
    loaded.rl_levels.restype = ctypes.c_char_p
    names: bytes = loaded.rl_levels()
    return names.decode().split(",")
