"""Which decoder computes here: the compiled one at its best level, else the portable one.

RIDGELINE_KERNELS forces one, by its level's name or "portable". `serving.engine.model` calls it.
"""

import os

from ridgeline.errors import ModelError
from ridgeline.kernels.decoder import Decoder, Shape, Weights
from ridgeline.kernels.library import levels
from ridgeline.kernels.native_decoder import NativeDecoder
from ridgeline.kernels.portable import PortableDecoder

VARIABLE = "RIDGELINE_KERNELS"
PORTABLE = "portable"


def kernels() -> str:
    """The level that serves here, or "portable". Raises ModelError for one that is not here."""
    wanted = os.environ.get(VARIABLE)
    if wanted == PORTABLE:  # also where the library cannot be loaded
        return PORTABLE
    here = [*levels(), PORTABLE]
    if not wanted:
        return here[0]
    if wanted not in here:
        raise ModelError(
            f"this machine has no kernels {wanted!r}",
            where=VARIABLE,
            remedy=f"one of {', '.join(here)}; the fastest where it is not set",
        )
    return wanted


def open_decoder(
    shape: Shape, weights: Weights, *, dtype: str, cache_dtype: str, threads: int
) -> Decoder:
    """A decoder with the given weights. Raises ValueError for shapes and types it cannot run."""
    level = kernels()
    if level == PORTABLE:
        return PortableDecoder(shape, weights, dtype)
    return NativeDecoder(
        shape, weights, dtype=dtype, cache_dtype=cache_dtype, level=level, threads=threads
    )
