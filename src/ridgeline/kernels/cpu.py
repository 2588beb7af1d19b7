"""The small steps between two matrix products on a CPU, compiled by numba.

The law of this file: every function fills arrays that the caller made, row by row; none allocates,
and a row's result depends on that row alone. `threads`, as many as numba is set to, share the
rows. `serving.engine.model` and `runner` call it. Arrays
are float32, or uint16 holding bf16 bits. Matrix products hand over their result as a machine
address (making an array of a tensor costs more than the work of a small step), so the caller
keeps that tensor alive during the call.

Shapes: T rows (tokens) of the flat batch, D hidden, F feed-forward, N query heads, H head
dimensions, S sequences. Cache layouts are drawn in `serving.engine.cache`.
"""

from typing import Any

import numpy as np
from numba import carray, int64, prange  # type: ignore[attr-defined]

from ridgeline.kernels.compiled import compiled
from ridgeline.kernels.simd import (
    EXP2_LEAST,
    EXP2_TERMS,
    LANES,
    LOG2_E,
    float_of_bits,
    narrow,
    pointer_to,
    widen,
)


@compiled()
def place_rows(
    tables_SB: Any, lens_S: Any, contexts_S: Any, block_size: int, positions_T: Any, slots_T: Any
) -> None:
    """Position of every row in its sequence, and its place in the cache, counted in tokens."""
    row = 0
    for s in range(lens_S.shape[0]):
        for position in range(contexts_S[s] - lens_S[s], contexts_S[s]):
            block = int64(tables_SB[s, position // block_size])
            positions_T[row] = position
            slots_T[row] = block * block_size + position % block_size
            row += 1


@compiled()
def _add_norm(
    x: Any, delta: Any, adds: bool, weight: Any, eps: Any, out: Any, first: int, end: int
) -> None:
    width = weight.shape[0]
    for row in range(first, end):
        line, to = x[row], out[row]
        if adds:
            added = delta[row * width : (row + 1) * width]
            for i in range(width):
                line[i] += widen(added[i])
        total = np.float32(0.0)
        for i in range(width):
            total += line[i] * line[i]
        factor = np.float32(1.0) / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            to[i] = narrow(out, line[i] * factor * weight[i])


@compiled(parallel=True)
def add_rmsnorm(
    x_TD: Any, delta: int, weight_D: Any, eps: float, out_TD: Any, threads: int
) -> None:
    """Add `delta` to x in place; out = x / rms(x) * weight.

    `x_TD` is the fp32 residual stream; `delta` the address of [T, D] items, 0 for none.

    Source: Zhang and Sennrich 2019 (RMSNorm).
    """
    rows, width = x_TD.shape
    added = carray(pointer_to(delta, out_TD), (rows * width,))
    small = np.float32(eps)
    for t in prange(threads):
        first, end = rows * t // threads, rows * (t + 1) // threads
        _add_norm(x_TD, added, delta != 0, weight_D, small, out_TD, first, end)


@compiled()
def _exp(x: Any) -> Any:
    """e**x, written so that LLVM vectorises loops over it (the library's exp it does not)."""
    y = min(max(x * LOG2_E, np.float32(EXP2_LEAST)), np.float32(127.0))
    whole = np.int32(y + np.float32(127.5)) - np.int32(127)
    rest = y - np.float32(whole)
    power = np.float32(EXP2_TERMS[0])
    for term in EXP2_TERMS[1:]:
        power = power * rest + np.float32(term)
    return power * float_of_bits(np.int32((whole + np.int32(127)) << np.int32(23)))


@compiled()
def _silu_mul(gate_up: Any, out: Any, first: int, end: int) -> None:
    width = out.shape[1]
    one = np.float32(1.0)
    for row in range(first, end):
        middle = row * 2 * width + width
        gate, up = gate_up[middle - width : middle], gate_up[middle : middle + width]
        to = out[row]
        for i in range(width):
            g = widen(gate[i])
            to[i] = narrow(out, g / (one + _exp(-g)) * widen(up[i]))


@compiled(parallel=True)
def silu_mul(gate_up: int, out_TF: Any, threads: int) -> None:
    """Fill out with silu(gate) * up; `gate_up` is the address of [T, 2F] items, gate first."""
    rows, width = out_TF.shape
    items = carray(pointer_to(gate_up, out_TF), (rows * 2 * width,))
    for t in prange(threads):
        _silu_mul(items, out_TF, rows * t // threads, rows * (t + 1) // threads)


@compiled()
def _rotate_head(items: Any, begin: int, norm: Any, eps: Any, cos: Any, sin: Any, to: Any) -> None:
    """Norm one head (where `norm` is not empty) and rotate its halves into fp32 `to`."""
    half = cos.shape[0]
    head = items[begin : begin + 2 * half]
    for i in range(2 * half):
        to[i] = widen(head[i])
    if norm.shape[0] > 0:
        total = np.float32(0.0)
        for i in range(2 * half):
            total += to[i] * to[i]
        factor = np.float32(1.0) / np.sqrt(total / np.float32(2 * half) + eps)
        for i in range(2 * half):
            to[i] *= factor * norm[i]
    low, high = to[:half], to[half:]
    for i in range(half):
        a, b = low[i], high[i]
        low[i] = a * cos[i] - b * sin[i]
        high[i] = b * cos[i] + a * sin[i]


@compiled()
def _store_key(line: Any, cache: Any, begin: int, key: int, packed: int) -> None:
    """One key into its block: column `key` of a [head_dim/2] x [16] x [pair] panel."""
    odd = 1 if packed == 2 else LANES
    block = cache[begin : begin + line.shape[0] * LANES]
    for pair in range(line.shape[0] // 2):
        at = pair * 2 * LANES + key * packed
        block[at] = narrow(cache, line[2 * pair])
        block[at + odd] = narrow(cache, line[2 * pair + 1])


@compiled()
def _store_value(
    items: Any, source: int, dims: int, cache: Any, begin: int, key: int, packed: int, last: bool
) -> None:
    """One value into its block, beside its pair.

    The last row of a sequence clears the place of its pair: attention reads whole pairs, with
    weight 0 for a key that is not there, and 0 times what an earlier owner left may be NaN.
    """
    odd = 1 if packed == 2 else dims
    at = begin + key // 2 * 2 * dims
    here, beside = cache[at + key % 2 * odd :], cache[at + odd :]
    line = items[source : source + dims]
    for d in range(dims):
        here[d * packed] = line[d]
    if last and key % 2 == 0:
        for d in range(dims):
            beside[d * packed] = narrow(cache, np.float32(0.0))


@compiled()
def _rope_rows(
    qkv: Any, slots: Any, cos: Any, sin: Any, q_norm: Any, k_norm: Any, eps: Any, keys: Any,
    values: Any, kv_heads: int, packed: int, q_TNH: Any, lines: Any, thread: int, first: int,
    end: int,
) -> None:  # fmt: skip
    heads, dims = q_TNH.shape[1], q_TNH.shape[2]
    line = lines[thread]
    for row in range(first, end):
        begin = row * (heads + 2 * kv_heads) * dims
        c, s = cos[row], sin[row]
        for head in range(heads):
            _rotate_head(qkv, begin + head * dims, q_norm, eps, c, s, line)
            to = q_TNH[row, head]
            for d in range(dims):
                to[d] = narrow(q_TNH, line[d])
        slot = slots[row]
        last = row + 1 == slots.shape[0] or slots[row + 1] != slot + 1
        for head in range(kv_heads):
            block = ((slot // LANES) * kv_heads + head) * dims * LANES
            _rotate_head(qkv, begin + (heads + head) * dims, k_norm, eps, c, s, line)
            _store_key(line, keys, block, slot % LANES, packed)
            source = begin + (heads + kv_heads + head) * dims
            _store_value(qkv, source, dims, values, block, slot % LANES, packed, last)


@compiled(parallel=True)
def rope_and_store(
    qkv: int, slots_T: Any, cos_TH: Any, sin_TH: Any, q_norm_H: Any, k_norm_H: Any, eps: float,
    k_cache: Any, v_cache: Any, q_TNH: Any, lines: Any, threads: int,
) -> None:  # fmt: skip
    """Rotate queries and keys by their position, and write keys and values to the cache.

    `qkv` is the address of [T, (N + 2 kv heads) * H] items; `slots_T` (int64) places in the
    cache, in keys; `cos_TH`, `sin_TH` the half tables of the rows; the norms' weights are empty
    where the architecture has none; `lines` [threads, H] fp32 is scratch.

    Source: Su et al. 2021 (RoPE), halves rotated as Hugging Face lays them out.
    """
    rows, heads, dims = q_TNH.shape
    kv_heads = k_cache.shape[1]
    items = carray(pointer_to(qkv, q_TNH), (rows * (heads + 2 * kv_heads) * dims,))
    keys, values = k_cache.reshape(-1), v_cache.reshape(-1)
    packed = 2 if k_cache.shape[4] == 2 else 1
    small = np.float32(eps)
    for t in prange(threads):
        _rope_rows(
            items, slots_T, cos_TH, sin_TH, q_norm_H, k_norm_H, small, keys, values,
            kv_heads, packed, q_TNH, lines, t, rows * t // threads, rows * (t + 1) // threads,
        )  # fmt: skip
