"""The small steps equal their plain versions, in both item types."""

from typing import Any

import numpy as np
import pytest
import torch

from ridgeline.kernels import cpu, reference
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import Arena

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}
CLOSE = {"fp32": 2e-6, "bf16": 1.0 / 256}
"""Relative difference: fp32 sums in another order; half a step of bf16's eight bits."""
THREADS = 2

dtypes = pytest.mark.parametrize("dtype", ["fp32", "bf16"])
row_counts = pytest.mark.parametrize("rows", [1, 2, 7, 33])


def items(tensor: torch.Tensor) -> Any:
    """The tensor's memory as the kernels take it."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def close(got: torch.Tensor, expected: torch.Tensor, dtype: str) -> bool:
    return torch.allclose(got.float(), expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@dtypes
@row_counts
def test_add_rmsnorm_adds_in_place_and_norms_the_sum(dtype: str, rows: int):
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, 72), torch.randn(72)
    delta = torch.randn(rows, 72).to(KINDS[dtype])
    out = torch.empty(rows, 72, dtype=KINDS[dtype])
    total = x + delta.float()
    cpu.add_rmsnorm(x.numpy(), delta.data_ptr(), weight.numpy(), 1e-5, items(out), THREADS)
    assert torch.equal(x, total)
    assert close(out, reference.rms_norm(total, weight, 1e-5), dtype)


@dtypes
def test_add_rmsnorm_without_a_delta_leaves_the_stream_alone(dtype: str):
    x, weight = torch.randn(3, 40), torch.ones(40)
    before, out = x.clone(), torch.empty(3, 40, dtype=KINDS[dtype])
    cpu.add_rmsnorm(x.numpy(), 0, weight.numpy(), 1e-6, items(out), THREADS)
    assert torch.equal(x, before)
    assert close(out, reference.rms_norm(before, weight, 1e-6), dtype)


@dtypes
@row_counts
def test_silu_mul_equals_the_plain_formula(dtype: str, rows: int):
    torch.manual_seed(rows)
    gate_up = (8 * torch.randn(rows, 2 * 50)).to(KINDS[dtype])
    out = torch.empty(rows, 50, dtype=KINDS[dtype])
    cpu.silu_mul(gate_up.data_ptr(), items(out), THREADS)
    assert close(out, reference.silu_mul(gate_up), dtype)


@dtypes
def test_silu_mul_keeps_its_limits_and_shows_nan(dtype: str):
    gate = torch.tensor([-1e30, -200.0, -90.0, 0.0, 90.0, 1e30, float("nan")])
    gate_up = torch.cat([gate, torch.ones(7)])[None].to(KINDS[dtype])
    out = torch.empty(1, 7, dtype=KINDS[dtype])
    cpu.silu_mul(gate_up.data_ptr(), items(out), 1)
    assert out[0, :3].abs().max() < 1e-7
    assert out[0, 3:6].tolist() == gate_up[0, 3:6].tolist()
    assert torch.isnan(out[0, 6])


def rope_case(dtype: str, rows: int, *, norms: bool) -> dict[str, Any]:
    heads, kv_heads, dims = 4, 2, 32
    torch.manual_seed(rows)
    qkv = torch.randn(rows, heads + 2 * kv_heads, dims).to(KINDS[dtype])
    angles = torch.rand(rows, dims // 2) * 6
    weights = [torch.randn(dims), torch.randn(dims)] if norms else [torch.empty(0)] * 2
    return {"qkv": qkv, "cos": angles.cos(), "sin": angles.sin(), "norms": weights}


@dtypes
@row_counts
@pytest.mark.parametrize("norms", [False, True], ids=["plain", "normed"])
def test_rope_and_store_rotates_queries_and_lays_keys_and_values_out(dtype, rows, norms):
    case = rope_case(dtype, rows, norms=norms)
    shape = Architecture("llama", 1, 16, 4, 2, 32, 16, 16, 512, 1e4, 1e-6)
    arena = Arena.of_blocks(shape, dtype, 4, 16)
    first = 5
    slots = np.arange(first, first + rows, dtype=np.int64)
    q = torch.empty(rows, 4, 32, dtype=KINDS[dtype])
    cpu.rope_and_store(
        case["qkv"].data_ptr(), slots, case["cos"].numpy(), case["sin"].numpy(),
        case["norms"][0].numpy(), case["norms"][1].numpy(), 1e-6,
        arena.keys[0], arena.values[0], items(q), np.empty((THREADS, 32), np.float32), THREADS,
    )  # fmt: skip
    parts = list(case["qkv"].float().split([4, 2, 2], dim=1))
    for i, weight in enumerate(case["norms"]):
        if norms:
            parts[i] = reference.rms_norm(parts[i], weight, 1e-6)
        parts[i] = reference.rope(parts[i], case["cos"], case["sin"])
    keys, values = read(arena, slots, dtype)
    assert close(q, parts[0], dtype)
    assert close(keys, parts[1], dtype)
    assert torch.equal(values, parts[2])


def read(arena: Arena, slots: np.ndarray, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [T, K, H] from the layout that cache.py draws."""
    kind = KINDS[dtype]
    keys = torch.from_numpy(arena.keys[0]).view(kind).float()
    values = torch.from_numpy(arena.values[0]).view(kind).float()
    if dtype == "fp32":  # [.., pair, 2, n] to [.., pair, n, 2]
        keys, values = keys.transpose(-1, -2), values.transpose(-1, -2)
    # keys [block, head, dims/2, 16, 2], values [block, head, 8, dims, 2]
    k = keys.permute(0, 3, 1, 2, 4).flatten(3).flatten(0, 1)
    v = values.permute(0, 2, 4, 1, 3).flatten(0, 2)
    return k[slots], v[slots]


def test_place_rows_follows_the_block_tables():
    tables = np.array([[7, 2, 0], [4, 9, 1]], np.int32)
    lens, contexts = np.array([2, 3], np.int32), np.array([34, 65], np.int32)
    positions, slots = np.empty(5, np.int64), np.empty(5, np.int64)
    cpu.place_rows(tables, lens, contexts, 32, positions, slots)
    assert positions.tolist() == [32, 33, 62, 63, 64]
    assert slots.tolist() == [2 * 32, 2 * 32 + 1, 9 * 32 + 30, 9 * 32 + 31, 1 * 32]
