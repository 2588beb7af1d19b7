"""Draws tokens from logits in C++: `native/sampling.h`, field by field.

The law of this file: it lays out a step's rows and makes one call, which shares them among threads
and releases Python's lock. `serving.engine.draw` is the oracle, and opens it.
"""

import ctypes
import struct
import weakref
from collections.abc import Sequence

import numpy as np

from ridgeline.kernels.decoder import Floats
from ridgeline.kernels.draws import Drawn, Row
from ridgeline.kernels.library import library

_ROW = struct.Struct("@PPddddqqPdif")
_OUTCOME = struct.Struct("@72xdif")


class NativeDraws:
    """Draws for one vocabulary at one level of the library, with threads of its own.

    Raises MemoryError where there is no memory for them.
    """

    def __init__(self, vocab: int, *, level: str, threads: int) -> None:
        lib = library()
        assert lib is not None, "opened only where there is a library"
        lib.rl_sampler_open.restype = ctypes.c_void_p
        lib.rl_sampler_open.argtypes = [ctypes.c_int64, ctypes.c_int32, ctypes.c_char_p]
        lib.rl_sampler_close.argtypes = [ctypes.c_void_p]
        lib.rl_sample.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        lib.rl_sample.restype = None
        self._lib = lib
        self._vocab = vocab
        self._handle = lib.rl_sampler_open(vocab, threads, level.encode())
        if not self._handle:
            raise MemoryError("no memory for the sampler's threads and scratch")
        self._close = weakref.finalize(self, lib.rl_sampler_close, self._handle)
        self._rows = ctypes.create_string_buffer(0)

    def draw(self, logits_RV: Floats, adjusted_AV: Floats, rows: Sequence[Row]) -> list[Drawn]:
        """One token for each of `rows`, each by itself."""
        stride = 4 * self._vocab
        for floats in (logits_RV, adjusted_AV):
            assert floats.flags.c_contiguous, "the library reads rows one after the other"
            assert floats.dtype == np.float32, f"logits are {floats.dtype}, not float32"
            assert floats.shape[1] == self._vocab, f"rows of {floats.shape[1]}"
        size = _ROW.size * len(rows)
        if size > len(self._rows):
            self._rows = ctypes.create_string_buffer(2 * size)
        raw, changed = logits_RV.ctypes.data, adjusted_AV.ctypes.data
        named = {
            i: np.empty(min(row.alternatives, self._vocab), np.int32)
            for i, row in enumerate(rows)
            if row.alternatives > 0
        }
        view = memoryview(self._rows)[:size]
        for i, row in enumerate(rows):
            at = raw + row.row * stride
            _ROW.pack_into(
                view, i * _ROW.size,
                at if row.adjusted < 0 else changed + row.adjusted * stride, at, *row[2:],
                named[i].ctypes.data if i in named else 0, 0.0, 0, 0.0,
            )  # fmt: skip
        self._lib.rl_sample(self._handle, self._rows, len(rows))
        return [
            Drawn(token, peak, normaliser, named[i].tolist() if i in named else ())
            for i, (normaliser, token, peak) in enumerate(_OUTCOME.iter_unpack(view))
        ]
