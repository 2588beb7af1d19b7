"""The arena of cached keys and values: its memory, and how a block is copied.

The law of this file: memory is taken once and zeroed lazily by the operating system, so that an
engine starts without touching it; blocks are numbered by `serving.policy.blocks`, and only
`kernels` knows how to read one (`kernels.decoder.Cache` draws it). `runner` copies blocks, the
decoder reads and fills them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgeline.kernels.decoder import TOKENS, Cache, Items
from ridgeline.serving.engine.architecture import Architecture

ITEMS: dict[str, npt.DTypeLike] = {"fp32": np.float32, "bf16": np.uint16, "int8": np.int8}
_SCALE_BYTES = 4


def block_bytes(architecture: Architecture, block_size: int, dtype: str) -> int:
    """Bytes of one block over all layers, keys and values together, and int8's scales."""
    a = architecture
    each = a.head_dim * np.dtype(ITEMS[dtype]).itemsize + (_SCALE_BYTES if dtype == "int8" else 0)
    return 2 * a.layers * a.kv_heads * block_size * each


@dataclass(frozen=True, slots=True)
class Arena:
    """All cached keys and values. `blocks` counts blocks of `block_size` tokens."""

    cache: Cache
    blocks: int
    block_size: int

    @classmethod
    def of_size(
        cls, architecture: Architecture, dtype: str, size_bytes: int, block_size: int
    ) -> "Arena":
        """As many blocks as fit in `size_bytes`; ValueError if that is none."""
        blocks = size_bytes // block_bytes(architecture, block_size, dtype)
        return cls.of_blocks(architecture, dtype, blocks, block_size)

    @classmethod
    def of_blocks(
        cls, architecture: Architecture, dtype: str, blocks: int, block_size: int
    ) -> "Arena":
        """A zeroed arena of exactly `blocks` blocks of fp32, bf16 or int8."""
        if blocks < 1:
            raise ValueError("the key-value cache holds not even one block")
        if block_size < TOKENS or block_size % TOKENS:
            raise ValueError(f"block size {block_size} is no multiple of {TOKENS}")
        a, item = architecture, ITEMS[dtype]
        lead = (a.layers, blocks * (block_size // TOKENS), a.kv_heads)
        pairs = dtype != "fp32"
        keys = np.zeros((*lead, a.head_dim // 2, *((TOKENS, 2) if pairs else (2, TOKENS))), item)
        values = np.zeros(
            (*lead, TOKENS // 2, *((a.head_dim, 2) if pairs else (2, a.head_dim))), item
        )
        scales = [np.zeros((*lead, TOKENS), np.float32) for _ in range(2)]
        key_scales, value_scales = scales if dtype == "int8" else (None, None)
        cache = Cache(keys, values, key_scales, value_scales, block_size // TOKENS)
        return cls(cache, blocks, block_size)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """Everything cached, each [layers, sixteens, ...]."""
        c = self.cache
        found: list[Items | None] = [c.keys, c.values, c.key_scales, c.value_scales]
        return [items for items in found if items is not None]

    @property
    def size_bytes(self) -> int:
        """Bytes of all of it."""
        return sum(items.nbytes for items in self.arrays)

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block in every layer (the copy of copy-on-write)."""
        per = self.cache.blocks_per
        here = slice(source * per, (source + 1) * per)
        there = slice(target * per, (target + 1) * per)
        for items in self.arrays:
            items[:, there] = items[:, here]
