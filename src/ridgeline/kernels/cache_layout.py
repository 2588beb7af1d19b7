"""Where a cached key or value lies, and how plain torch reads and writes it.

The law of this file: it alone spells out, in Python, the layout drawn in `decoder.Cache`, as views
with the same order of dimensions for every type. It clears nothing, and hands out only what was
asked for, never the rest of a block. `portable` calls it, and tests that look into a cache.

Shapes: T rows, S cached keys of a sequence, B blocks of sixteen, K key-value heads, H dimensions.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ridgeline.kernels.decoder import TOKENS, Cache, Items

INT8_MOST = 127
"""Numbers are symmetric, -127..127: -128 has no counterpart."""

Int64 = npt.NDArray[np.int64]


def places(table: npt.NDArray[Any], positions: Int64, blocks_per: int) -> tuple[Int64, Int64]:
    """The block of sixteen, and the key in it, of each of a sequence's positions.

    The sixteens of a table [7, 2] with two to a block:  14, 15, 4, 5
    """
    block, inside = np.divmod(positions // TOKENS, blocks_per)
    return table.astype(np.int64)[block] * blocks_per + inside, positions % TOKENS


def sixteens(table: npt.NDArray[Any], count: int, blocks_per: int) -> Int64:
    """The blocks of sixteen that hold a sequence's first `count` positions, in order."""
    return places(table, np.arange(0, count, TOKENS), blocks_per)[0]


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 numbers and their scale, absmax / 127, of the last dimension.

    A number is x * (1 / scale), rounded once, as a fused multiply-add does it, with halves to even:
    bf16 rows are full of near halves. All are zero where 1 / scale would overflow, or x is zero.
    """
    scale = x.abs().amax(-1, keepdim=True) / INT8_MOST
    inverse = torch.where(scale >= torch.finfo(torch.float32).tiny, 1 / scale, 0.0)
    numbers = (x.double() * inverse.double()).round().to(torch.int8)
    return numbers, scale.squeeze(-1)


def store(
    cache: Cache,
    layer: int,
    block_T: torch.Tensor,
    slot_T: torch.Tensor,
    k_TKH: torch.Tensor,
    v_TKH: torch.Tensor,
) -> None:
    """Write fp32 keys and values to their places, in the cache's type."""
    if cache.key_scales is not None and cache.value_scales is not None:
        k_TKH, k_scale_TK = quantised(k_TKH)
        v_TKH, v_scale_TK = quantised(v_TKH)
        _scales(cache.key_scales[layer])[block_T, slot_T] = k_scale_TK
        _scales(cache.value_scales[layer])[block_T, slot_T] = v_scale_TK
    keys, values = _keys(cache.keys[layer]), _values(cache.values[layer])
    keys[block_T, slot_T] = k_TKH.reshape(*k_TKH.shape[:2], -1, 2).to(keys.dtype)
    values[block_T, slot_T // 2, slot_T % 2] = v_TKH.to(values.dtype)


def key_numbers(
    cache: Cache, layer: int, sixteens_B: Int64, count: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The first `count` keys of some blocks as stored, [S, K, H] fp32, and their scales [S, K]."""
    numbers = _keys(cache.keys[layer][sixteens_B]).flatten(3).flatten(0, 1)
    return numbers[:count].float(), _some_scales(cache.key_scales, layer, sixteens_B, count)


def value_numbers(
    cache: Cache, layer: int, sixteens_B: Int64, count: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The first `count` values of some blocks as stored, [S, K, H] fp32, and their scales."""
    numbers = _values(cache.values[layer][sixteens_B]).flatten(0, 2)
    return numbers[:count].float(), _some_scales(cache.value_scales, layer, sixteens_B, count)


def gathered_keys(cache: Cache, layer: int, table: npt.NDArray[Any], count: int) -> torch.Tensor:
    """A sequence's first `count` keys, [S, K, H] fp32; int8 is multiplied by its scale."""
    blocks = sixteens(table, count, cache.blocks_per)
    return _scaled(*key_numbers(cache, layer, blocks, count))


def gathered_values(cache: Cache, layer: int, table: npt.NDArray[Any], count: int) -> torch.Tensor:
    """A sequence's first `count` values, [S, K, H] fp32; int8 is multiplied by its scale."""
    blocks = sixteens(table, count, cache.blocks_per)
    return _scaled(*value_numbers(cache, layer, blocks, count))


def _scaled(numbers_SKH: torch.Tensor, scales_SK: torch.Tensor | None) -> torch.Tensor:
    return numbers_SKH if scales_SK is None else numbers_SKH * scales_SK[..., None]


def _tensor(items: Items) -> torch.Tensor:
    """The same memory; sixteen bits are bf16."""
    tensor = torch.from_numpy(items)
    return tensor.view(torch.bfloat16) if items.dtype == np.uint16 else tensor


def _keys(items: Items) -> torch.Tensor:
    """A layer's keys as [blocks, 16, K, H / 2, 2]."""
    stored = _tensor(items)
    order = (0, 4, 1, 2, 3) if stored.dtype == torch.float32 else (0, 3, 1, 2, 4)
    return stored.permute(order)


def _values(items: Items) -> torch.Tensor:
    """A layer's values as [blocks, 8, 2, K, H]."""
    stored = _tensor(items)
    order = (0, 2, 3, 1, 4) if stored.dtype == torch.float32 else (0, 2, 4, 1, 3)
    return stored.permute(order)


def _scales(scales: Items) -> torch.Tensor:
    """A layer's scales as [blocks, 16, K]."""
    return torch.from_numpy(scales).permute(0, 2, 1)


def _some_scales(
    scales: Items | None, layer: int, sixteens_B: Int64, count: int
) -> torch.Tensor | None:
    if scales is None:
        return None
    return _scales(scales[layer][sixteens_B]).flatten(0, 1)[:count]
