"""Each instruction does what its docstring says."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from ridgeline.kernels import simd


@njit
def to_bf16(values, out):
    for i in range(values.size):
        out[i] = simd.narrow(out, values[i])


@njit
def to_fp32(items, out):
    for i in range(items.size):
        out[i] = simd.widen(items[i])


@njit
def powers(row, top):
    return simd.row_exp2(row, 0, row.size // 16, top)


@njit
def highest(row):
    return simd.row_max(row, 0, row.size // 16)


@njit
def take(counter, times):
    for _ in range(times):
        last = simd.take_next(counter)
    return last


singles = st.floats(width=32, allow_nan=False)


@settings(deadline=None)
@given(st.lists(singles, min_size=1, max_size=50))
def test_bf16_rounds_to_nearest_even_as_torch_does(values: list[float]):
    expected = torch.tensor(values).bfloat16()
    got = np.empty(len(values), np.uint16)
    to_bf16(np.array(values, np.float32), got)
    assert (got == expected.view(torch.uint16).numpy()).all()
    back = np.empty(len(values), np.float32)
    to_fp32(got, back)
    assert (back == expected.float().numpy()).all()


def test_bf16_keeps_nan():
    got = np.empty(1, np.uint16)
    to_bf16(np.array([np.nan], np.float32), got)
    assert torch.isnan(torch.from_numpy(got).view(torch.bfloat16)).all()


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_row_exp2_is_exact_to_a_few_roundings_and_sums(blocks: int, seed: int):
    row = np.random.default_rng(seed).uniform(-200, 3, 16 * blocks).astype(np.float32)
    top = row.max()
    expected = np.exp2((row - top).astype(np.float64))
    total = powers(row, top)
    assert np.allclose(row, expected, rtol=1e-6, atol=1.3e-38)
    assert np.isclose(total, row.sum(dtype=np.float64), rtol=1e-6)


def test_row_exp2_gives_zero_not_almost_zero_to_hidden_keys():
    row = np.full(16, -1e30, np.float32)
    row[3] = 7.0
    assert powers(row, np.float32(7.0)) == 1.0
    assert row.tolist() == [0.0] * 3 + [1.0] + [0.0] * 12


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_row_max_finds_the_largest_in_any_lane(blocks: int, seed: int):
    row = np.random.default_rng(seed).normal(size=16 * blocks).astype(np.float32)
    assert highest(row) == row.max()


def test_take_next_counts_up():
    counter = np.zeros(1, np.int64)
    assert take(counter, 5) == 4
    assert counter[0] == 5
