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


_REMEDY = "`pip install` this package again (`make setup` in a checkout)"
_NAMED = "RIDGELINE_KERNEL_LIBRARY"


def library_path() -> Path:
    """Where the library lies, or would lie; RIDGELINE_KERNEL_LIBRARY names another."""
    named = os.environ.get(_NAMED)
    ending = "dylib" if sys.platform == "darwin" else "so"
    return Path(named) if named else Path(__file__).parent / "native" / f"libridgeline.{ending}"


@cache
def library() -> ctypes.CDLL | None:
    """The loaded library; None where none was built.

    Raises ModelError where it belongs to another version of this package, or cannot be loaded.
    """
    path = library_path()
    if not path.is_file():
        if os.environ.get(_NAMED):
            raise ModelError(f"{path} is no file", where=_NAMED, remedy="a library of kernels")
        return None
    if _is_torn(path):
        raise ModelError("the kernels are cut short", where=str(path), remedy=_REMEDY)
    try:
        loaded = ctypes.CDLL(str(path))
        found = loaded.rl_abi()
    except (OSError, AttributeError) as error:
        raise ModelError(
            f"the kernels cannot be loaded: {error}", where=str(path), remedy=_REMEDY
        ) from error
    if found != ABI:
        raise ModelError(
            f"the kernels speak version {found} of their interface, not {ABI}",
            where=str(path),
            remedy=_REMEDY,
        )
    return loaded


def _is_torn(path: Path) -> bool:
    """Whether an ELF file ends before its table of sections, which linkers write last.

    The loader maps what is not there, and the process would die of SIGBUS.
    """
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or head[:5] != b"\x7fELF\x02":  # not of 64 bits: for the loader to judge
        return False
    table = int.from_bytes(head[40:48], "little")
    size, count = (int.from_bytes(head[at : at + 2], "little") for at in (58, 60))
    return path.stat().st_size < table + size * count


def levels() -> list[str]:
    """The instruction sets that both the library and this processor have, best first."""
    loaded = library()
    if loaded is None:
        return []
    loaded.rl_levels.restype = ctypes.c_char_p
    names: bytes = loaded.rl_levels()
    return names.decode().split(",")
