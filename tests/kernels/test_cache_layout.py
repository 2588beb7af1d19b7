"""The layout is the one drawn in `decoder.Cache`, and what is stored comes back."""

import numpy as np
import pytest
import torch
from decoder_parts import dirty_cache, shuffled_tables
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.kernels.cache_layout import (
    gathered_keys,
    gathered_values,
    places,
    quantised,
    sixteens,
    store,
)
from ridgeline.kernels.decoder import TOKENS, Cache, Shape

LAYERS = 2


def shape_of(kv_heads: int, head_dim: int) -> Shape:
    return Shape(LAYERS, 1, kv_heads, kv_heads, head_dim, 1, 1, 1e-5, np.ones(1, np.float32))


def draw(count: int, kv_heads: int, head_dim: int, seed: int) -> list[torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return [torch.randn(count, kv_heads, head_dim, generator=chance) for _ in range(2)]


def fill(cache: Cache, table: np.ndarray, k: torch.Tensor, v: torch.Tensor, *, layer: int) -> None:
    block, slot = places(table, np.arange(len(k)), cache.blocks_per)
    store(cache, layer, torch.from_numpy(block), torch.from_numpy(slot), k, v)


def test_a_position_is_in_the_sixteen_that_its_table_names():
    block, slot = places(np.array([7, 2], np.int32), np.array([0, 16, 33, 63]), 2)
    assert block.tolist() == [14, 15, 4, 5]
    assert slot.tolist() == [0, 0, 1, 15]
    assert sixteens(np.array([7, 2], np.int32), 33, 2).tolist() == [14, 15, 4]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_items_lie_as_drawn(dtype: str):
    cache = dirty_cache(shape_of(2, 16), dtype, 3)
    k, v = (torch.arange(1.0, 65.0).view(2, 2, 16) + i for i in (0, 0.5))
    store(cache, 1, torch.tensor([2, 0]), torch.tensor([5, 8]), k, v)
    for row, block, slot in ((0, 2, 5), (1, 0, 8)):
        for head in range(2):
            for dim in (0, 7, 14):
                keys, values = cache.keys[1, block, head], cache.values[1, block, head]
                if dtype == "fp32":
                    key, value = keys[dim // 2, dim % 2, slot], values[slot // 2, slot % 2, dim]
                else:
                    key, value = keys[dim // 2, slot, dim % 2], values[slot // 2, dim, slot % 2]
                for got, expected in ((key, k[row, head]), (value, v[row, head])):
                    assert got == stored(expected, dim, dtype)


def stored(line: torch.Tensor, dim: int, dtype: str) -> float:
    if dtype == "bf16":
        return int(line.bfloat16().view(torch.uint16)[dim])
    return float((quantised(line)[0] if dtype == "int8" else line)[dim])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["fp32", "bf16", "int8"]),
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([(1, 16), (3, 48), (2, 64)]),
    st.integers(0, 1000),
)
def test_what_is_stored_comes_back(dtype, lengths, blocks_per, heads, seed):
    tables, blocks = shuffled_tables(lengths, blocks_per=blocks_per, seed=seed)
    cache = dirty_cache(shape_of(*heads), dtype, blocks, blocks_per=blocks_per)
    drawn = [draw(length, *heads, seed + i) for i, length in enumerate(lengths)]
    for table, (k, v) in zip(tables, drawn, strict=True):
        fill(cache, table, k, v, layer=1)
    for table, (k, v) in zip(tables, drawn, strict=True):
        for got, put in (
            (gathered_keys(cache, 1, table, len(k)), k),
            (gathered_values(cache, 1, table, len(v)), v),
        ):
            assert got.dtype == torch.float32
            if dtype == "int8":
                assert ((got - put).abs() <= 0.5001 * put.abs().amax(-1, keepdim=True) / 127).all()
            else:
                assert torch.equal(got, put if dtype == "fp32" else put.bfloat16().float())


def test_only_the_places_that_are_named_are_written():
    cache = dirty_cache(shape_of(1, 16), "fp32", 4)
    k, v = draw(5, 1, 16, 0)
    fill(cache, np.array([2], np.int32), k, v, layer=0)
    for items in (cache.keys, cache.values):
        assert np.isfinite(items[0, 2]).sum() == 5 * 16
        assert np.isnan(items[1]).all()
        assert np.isnan(items[0, [0, 1, 3]]).all()
    assert gathered_keys(cache, 0, np.array([2], np.int32), 5).isfinite().all()
    assert gathered_values(cache, 0, np.array([2], np.int32), TOKENS).isnan().any()


def test_halves_are_rounded_to_even_and_a_row_of_zeros_has_scale_zero():
    numbers, scale = quantised(torch.tensor([[127.0, 0.5, 1.5, -2.5], [0.0, 0.0, 0.0, 0.0]]))
    assert numbers.tolist() == [[127, 0, 2, -2], [0, 0, 0, 0]]
    assert scale.tolist() == [1.0, 0.0]


def test_a_number_is_rounded_once():
    # 96 * fp32(1 / fp32(192 / 127)) is just below 63.5, and 63.5 in fp32.
    assert quantised(torch.tensor([192.0, 96.0, -96.0]))[0].tolist() == [127, 63, -63]


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=20))
def test_a_quantised_number_is_off_by_half_a_step_at_most(row: list[float]):
    x = torch.tensor(row)
    numbers, scale = quantised(x)
    assert numbers.min() >= -127, "-128 has no counterpart"
    assert ((numbers.double() * scale - x.double()).abs() <= 0.5001 * scale + 2e-36).all()
