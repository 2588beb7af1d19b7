"""The arena of cached keys and values: what lies where, and how a block is copied.

The law of this file: memory is taken once and zeroed lazily by the operating system, so that an
engine starts without touching it; blocks are numbered by `serving.policy.blocks`, and only
the room `kernels` knows how to read one. `runner` copies blocks, `model` reads and fills them.

A block of sixteen tokens, of one layer and one key-value head (a longer block is several):

    keys    [head_dim / 2] [16 keys] [2]     bf16: dimensions 2i and 2i+1 of a key are one word
            [head_dim / 2] [2] [16 keys]     fp32
    values  [8 pairs] [head_dim] [2]         bf16: keys 2j and 2j+1 of a dimension are one word
            [8 pairs] [2] [head_dim]         fp32

so that sixteen neighbours are one load, and a kernel with bf16 dot products (AVX512_BF16 or
AMX) finds its operands in the order in which it wants them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgeline.serving.engine.architecture import Architecture

TOKENS = 16
"""Tokens of the smallest block; a block size is a multiple of it."""

Items = npt.NDArray[Any]
"""float32, or uint16 holding bf16 bits."""


def block_bytes(architecture: Architecture, block_size: int, dtype: str) -> int:
    """Bytes of one block over all layers, keys and values together."""
    item_bytes = 2 if dtype == "bf16" else 4
    a = architecture
    return 2 * a.layers * a.kv_heads * a.head_dim * block_size * item_bytes


@dataclass(frozen=True, slots=True)
class Arena:
    """All cached keys and values: `keys[layer]`, `values[layer]` as drawn above.

    `blocks` counts blocks of `block_size` tokens.
    """

    keys: Items
    values: Items
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
        """A zeroed arena of exactly `blocks` blocks."""
        if blocks < 1:
            raise ValueError("the key-value cache holds not even one block")
        if block_size < TOKENS or block_size % TOKENS:
            raise ValueError(f"block size {block_size} is no multiple of {TOKENS}")
        a = architecture
        lead = (a.layers, blocks * (block_size // TOKENS), a.kv_heads)
        if dtype == "bf16":
            keys = np.zeros((*lead, a.head_dim // 2, TOKENS, 2), np.uint16)
            values = np.zeros((*lead, TOKENS // 2, a.head_dim, 2), np.uint16)
        else:
            keys = np.zeros((*lead, a.head_dim // 2, 2, TOKENS), np.float32)
            values = np.zeros((*lead, TOKENS // 2, 2, a.head_dim), np.float32)
        return cls(keys, values, blocks, block_size)

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values together."""
        return self.keys.nbytes + self.values.nbytes

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block in every layer (the copy of copy-on-write)."""
        per = self.block_size // TOKENS
        here = slice(source * per, (source + 1) * per)
        there = slice(target * per, (target + 1) * per)
        for items in (self.keys, self.values):
            items[:, there] = items[:, here]
