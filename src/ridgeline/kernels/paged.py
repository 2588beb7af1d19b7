"""Attention over the paged cache on a CPU, compiled by numba.

The law of this file: a row's result depends on that row and its own keys alone, bit for bit,
never on what else is in the batch or how the work is cut. `serving.engine.attention` calls it;
the cache's layout is drawn in `serving.engine.cache`.

    batch ── plan ──▶ units (sequence x query rows x keys x key-value head), heaviest first
    each thread takes the next unit:  scores ▶ online softmax ▶ values, 128 keys at a time
    rows whose keys were cut into parts are merged at the end

Shapes: T rows (tokens) of the flat batch, N query heads, H head dimensions, S sequences. A
"group" is the query heads that share one key-value head. Items are float32, or uint16 holding
bf16 bits; sums are float32.
"""

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import int64, prange

from ridgeline.kernels.compiled import compiled
from ridgeline.kernels.simd import (
    LANES,
    LOG2_E,
    make_scores,
    make_values,
    narrow,
    row_exp2,
    row_max,
    take_next,
    widen,
)

KEYS = 128
"""Keys of one softmax step: their scores, and the keys themselves, stay in the first cache."""
PART_KEYS = 1024
"""A longer context is cut here, so that threads can share one sequence. A constant: were it to
follow the batch, a row's rounding would depend on its neighbours."""
UNIT_FIELDS = 7
"""sequence, first row, rows, kv head, first key, end key, place among partial results or -1."""
MERGE_FIELDS = 5
"""first row, rows, kv head, first place, parts."""
# Sums kept in registers: 4 rows x 4 vectors where there are 32 wide registers, else 4 x 1.
PANELS = 4 if llvm.get_host_cpu_features().get("avx512f", False) else 1
_BLOCKS_OF_STEP = KEYS // LANES

_scores_1, _scores_2 = make_scores(1, PANELS), make_scores(2, PANELS)
_scores_3, _scores_4 = make_scores(3, PANELS), make_scores(4, PANELS)
_values_1, _values_2 = make_values(1, PANELS), make_values(2, PANELS)
_values_3, _values_4 = make_values(3, PANELS), make_values(4, PANELS)
_narrow_1, _narrow_2 = make_values(1, 1), make_values(2, 1)
_narrow_3, _narrow_4 = make_values(3, 1), make_values(4, 1)


@compiled()
def _score_rows(queries: Any, dims: int, rows: int, keys: Any, starts: Any, out: Any) -> None:
    """Scores of `rows` query rows against one step of keys, four rows at a time."""
    for first in range(0, _BLOCKS_OF_STEP, PANELS):
        if starts[first] < 0:
            break
        column = first * LANES
        for row in range(0, rows, 4):
            q, to, left = row * dims, row * KEYS + column, rows - row
            if left >= 4:
                _scores_4(queries, q, dims, keys, starts, first, out, to, KEYS)
            elif left == 3:
                _scores_3(queries, q, dims, keys, starts, first, out, to, KEYS)
            elif left == 2:
                _scores_2(queries, q, dims, keys, starts, first, out, to, KEYS)
            else:
                _scores_1(queries, q, dims, keys, starts, first, out, to, KEYS)


@compiled()
def _value_rows(
    weights: Any, dims: int, rows: int, cache: Any, starts: Any, pairs: int, sums: Any
) -> None:
    """Add the weighted values of one step of keys to `rows` rows of sums."""
    wide = dims // LANES // PANELS * PANELS * LANES
    for row in range(0, rows, 4):
        w, to, left = row * KEYS, row * dims, rows - row
        for c in range(0, wide, PANELS * LANES):
            if left >= 4:
                _values_4(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
            elif left == 3:
                _values_3(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
            elif left == 2:
                _values_2(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
            else:
                _values_1(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
        for c in range(wide, dims, LANES):
            if left >= 4:
                _narrow_4(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
            elif left == 3:
                _narrow_3(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
            elif left == 2:
                _narrow_2(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)
            else:
                _narrow_1(weights, w, KEYS, cache, starts, pairs, c, sums, to + c, dims)


@compiled()
def _find_blocks(
    table: Any, first_key: int, keys: int, blocks_per: int, stride: int, offset: int, starts: Any
) -> None:
    """Where the blocks of sixteen keys begin; the last is repeated to fill the last panel group.

    `blocks_per` blocks of sixteen make one block of the table.
    """
    count = (keys + LANES - 1) // LANES
    for i in range(_BLOCKS_OF_STEP):
        if i >= count and i % PANELS == 0:
            for rest in range(i, _BLOCKS_OF_STEP):
                starts[rest] = -1
            return
        block = first_key // LANES + min(i, count - 1)
        physical = int64(table[block // blocks_per]) * blocks_per + block % blocks_per
        starts[i] = physical * stride + offset


@compiled()
def _softmax_step(
    scores: Any, sums: Any, top: Any, total: Any, row: int, limit: int, padded: int, dims: int
) -> None:
    """Online softmax: rescale what is summed so far to the new maximum, weigh this step's keys."""
    begin = row * KEYS
    for j in range(limit, padded):
        scores[begin + j] = np.float32(-1e30)
    blocks = (limit + LANES - 1) // LANES
    highest = max(top[row], row_max(scores, begin, blocks))
    shrink = np.float32(np.exp2(top[row] - highest))
    here = row_exp2(scores, begin, blocks, highest)
    for j in range(blocks * LANES, padded):
        scores[begin + j] = np.float32(0.0)
    total[row] = total[row] * shrink + here
    top[row] = highest
    if shrink != np.float32(1.0):
        for d in range(dims):
            sums[row * dims + d] *= shrink


@compiled()
def _attend(
    q: Any, keys: Any, values: Any, table: Any, unit: Any, context: int, last_row: int,
    group: int, dims: int, blocks_per: int, kv_heads: int, scale: Any, scratch: Any, starts: Any,
) -> None:  # fmt: skip
    """One unit: some query rows of one key-value head over some keys; sums stay in scratch."""
    first_row, positions, head = unit[1], unit[2], unit[3]
    rows = positions * group
    queries, sums = scratch[: rows * dims], scratch[rows * dims : 2 * rows * dims]
    scores = scratch[2 * rows * dims : rows * (2 * dims + KEYS)]
    top = scratch[rows * (2 * dims + KEYS) : rows * (2 * dims + KEYS + 1)]
    total = scratch[rows * (2 * dims + KEYS + 1) : rows * (2 * dims + KEYS + 2)]
    heads = kv_heads * group
    for r in range(rows):
        source = ((first_row + r // group) * heads + head * group + r % group) * dims
        for d in range(dims):
            queries[r * dims + d] = widen(q[source + d]) * scale
            sums[r * dims + d] = 0.0
        top[r], total[r] = np.float32(-1e30), np.float32(0.0)
    stride, offset = kv_heads * dims * LANES, head * dims * LANES
    first_position = context - (last_row - first_row)
    for begin in range(unit[4], unit[5], KEYS):
        count = min(unit[5] - begin, KEYS)
        padded = (count + LANES - 1) // LANES * LANES
        _find_blocks(table, begin, count, blocks_per, stride, offset, starts)
        _score_rows(queries, dims, rows, keys, starts, scores)
        for r in range(rows):
            limit = min(first_position + r // group + 1 - begin, count)
            if limit > 0:
                _softmax_step(scores, sums, top, total, r, limit, padded, dims)
            else:
                scores[r * KEYS : r * KEYS + padded] = 0.0
        _value_rows(scores, dims, rows, values, starts, (count + 1) // 2, sums)


@compiled()
def _finish(
    unit: Any, group: int, dims: int, kv_heads: int, scratch: Any, out: Any, partial: Any
) -> None:
    """Write a whole unit's rows out, or lay its sums aside for `_merge`."""
    first_row, rows, head, place = unit[1], unit[2] * group, unit[3], unit[6]
    sums, marks = rows * dims, rows * (2 * dims + KEYS)
    for r in range(rows):
        total = scratch[marks + rows + r]
        if place < 0:
            share = np.float32(1.0) / total
            to = ((first_row + r // group) * kv_heads * group + head * group + r % group) * dims
            for d in range(dims):
                out[to + d] = narrow(out, scratch[sums + r * dims + d] * share)
        else:
            kept = partial[place, r]
            for d in range(dims):
                kept[d] = scratch[sums + r * dims + d]
            kept[dims], kept[dims + 1] = scratch[marks + r], total


@compiled()
def _merge(merge: Any, group: int, dims: int, kv_heads: int, partial: Any, out: Any) -> None:
    """Join the parts of rows whose context was cut: each part's sums, on one common maximum."""
    first_row, rows, head, place, parts = merge[0], merge[1] * group, merge[2], merge[3], merge[4]
    for r in range(rows):
        highest = partial[place, r, dims]
        for part in range(1, parts):
            highest = max(highest, partial[place + part, r, dims])
        total = np.float32(0.0)
        for part in range(parts):
            kept = partial[place + part, r]
            kept[dims] = np.float32(np.exp2(kept[dims] - highest))
            total += kept[dims] * kept[dims + 1]
        to = ((first_row + r // group) * kv_heads * group + head * group + r % group) * dims
        for d in range(dims):
            value = np.float32(0.0)
            for part in range(parts):
                value += partial[place + part, r, dims] * partial[place + part, r, d]
            out[to + d] = narrow(out, value / total)


@compiled()
def _attend_units(
    counter: Any, q: Any, keys: Any, values: Any, tables: Any, ends: Any, contexts: Any,
    units: Any, group: int, dims: int, blocks_per: int, kv_heads: int, scale: Any,
    scratches: Any, all_starts: Any, thread: int, partial: Any, out: Any,
) -> None:  # fmt: skip
    """What one thread does: take the next unit until none is left."""
    scratch, starts = scratches[thread], all_starts[thread]
    while True:
        i = take_next(counter)
        if i >= units.shape[0]:
            return
        unit = units[i]
        s = unit[0]
        _attend(
            q, keys, values, tables[s], unit, contexts[s], ends[s],
            group, dims, blocks_per, kv_heads, scale, scratch, starts,
        )  # fmt: skip
        _finish(unit, group, dims, kv_heads, scratch, out, partial)


@compiled(parallel=True)
def attention(
    q_TNH: Any, k_cache: Any, v_cache: Any, tables_SB: Any, ends_S: Any, contexts_S: Any,
    units: Any, merges: Any, counter: Any, scratch: Any, starts: Any, partial: Any, out_TNH: Any,
    blocks_per: int, scale: float, threads: int,
) -> None:  # fmt: skip
    """Attention of every row of the flat batch over its own sequence's cached keys, causally.

    `units` (int32 [:, 7], heaviest first) say who reads what, `merges` (int32 [:, 5]) which of
    them to join; `plan` makes both. Each of `threads`, as many as numba is set to, has a row of
    `scratch` and `starts`; `counter` is zeroed here. Flash attention's online softmax, with split
    keys for long contexts.

    Source: Dao et al. 2022 (FlashAttention), Dao 2023 (Flash-Decoding).
    """
    kv_heads, dims = k_cache.shape[1], q_TNH.shape[2]
    group = q_TNH.shape[1] // kv_heads
    q, out = q_TNH.reshape(-1), out_TNH.reshape(-1)
    keys, values = k_cache.reshape(-1), v_cache.reshape(-1)
    factor = np.float32(scale) * LOG2_E
    counter[0] = 0
    for thread in prange(threads):
        _attend_units(
            counter, q, keys, values, tables_SB, ends_S, contexts_S, units, group, dims,
            blocks_per, kv_heads, factor, scratch, starts, thread, partial, out,
        )  # fmt: skip
    for i in range(merges.shape[0]):
        _merge(merges[i], group, dims, kv_heads, partial, out)


@compiled()
def plan(
    starts_S: Any, lens_S: Any, contexts_S: Any, kv_heads: int, positions: int, units: Any,
    merges: Any, costs: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Cut a batch into units: by sequence, by `positions` query rows, by keys, by kv head.

    Fills units, costs (query rows x keys) and merges; returns the numbers of units, merges and
    partial results. With `units` empty it only counts.
    """
    write = units.shape[0] > 0
    unit = merge = place = 0
    for s in range(lens_S.shape[0]):
        for begin in range(0, lens_S[s], positions):
            rows = min(positions, lens_S[s] - begin)
            keys = contexts_S[s] - lens_S[s] + begin + rows
            parts = (keys + PART_KEYS - 1) // PART_KEYS
            for head in range(kv_heads):
                for part in range(parts):
                    if write:
                        line = units[unit]
                        line[0], line[1], line[2], line[3] = s, starts_S[s] + begin, rows, head
                        line[4] = part * PART_KEYS
                        line[5] = min(keys, line[4] + PART_KEYS)
                        line[6] = place + part if parts > 1 else -1
                        costs[unit] = rows * (line[5] - line[4])
                    unit += 1
                if parts > 1:
                    if write:
                        line = merges[merge]
                        line[0], line[1], line[2] = starts_S[s] + begin, rows, head
                        line[3], line[4] = place, parts
                    merge += 1
                    place += parts
    return unit, merge, place
