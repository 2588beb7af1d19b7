"""The arena holds what its size allows, and copies whole blocks."""

import numpy as np
import pytest

from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import Arena, block_bytes

SHAPE = Architecture("llama", 3, 64, 4, 2, 16, 96, 300, 512, 1e4, 1e-5)


@pytest.mark.parametrize(("dtype", "item_bytes"), [("bf16", 2), ("fp32", 4), ("int8", 1 + 4 / 16)])
@pytest.mark.parametrize("block_size", [16, 32])
def test_the_arena_is_as_large_as_its_blocks(dtype: str, item_bytes: int, block_size: int):
    one = block_bytes(SHAPE, block_size, dtype)
    assert one == 2 * 3 * 2 * 16 * block_size * item_bytes
    arena = Arena.of_size(SHAPE, dtype, 5 * one + one // 2, block_size)
    assert arena.blocks == 5
    assert arena.size_bytes == 5 * one


def test_a_bf16_block_is_what_the_architecture_says_a_token_needs():
    assert block_bytes(SHAPE, 16, "bf16") == 16 * SHAPE.kv_bytes_per_token


def test_no_room_for_a_block_and_odd_block_sizes_are_refused():
    with pytest.raises(ValueError, match="not even one block"):
        Arena.of_size(SHAPE, "bf16", 100, 16)
    with pytest.raises(ValueError, match="no multiple of 16"):
        Arena.of_blocks(SHAPE, "bf16", 4, 24)


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int8"])
def test_a_copy_is_of_one_block_in_every_layer(dtype: str):
    arena = Arena.of_blocks(SHAPE, dtype, 4, 32)
    chance = np.random.default_rng(0)
    for items in arena.arrays:
        items[:] = chance.integers(1, 100, items.shape)
    before = [items.copy() for items in arena.arrays]
    arena.copy_block(1, 3)
    for items, old in zip(arena.arrays, before, strict=True):
        assert (items[:, 6:8] == old[:, 2:4]).all()
        assert (items[:, :6] == old[:, :6]).all()
