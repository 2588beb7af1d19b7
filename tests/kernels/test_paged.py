"""Attention over the paged cache equals plain attention, whatever the batch is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.kernels import cpu, paged, reference
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.attention import Layout, paged_attention, scratch_for
from ridgeline.serving.engine.cache import Arena

TOLERANCE = {"fp32": 3e-6, "bf16": 2e-2}
"""Largest difference: fp32 sums in another order; bf16 rounds the output (values up to 4)."""

HEADS = ((9, 3), (8, 8), (14, 2), (4, 4), (6, 3), (16, 1))


@dataclass(frozen=True)
class Case:
    """A batch: each sequence's new rows and its context with them."""

    dtype: str
    rows: tuple[tuple[int, int], ...]
    heads: tuple[int, int] = (9, 3)
    head_dim: int = 64
    block_size: int = 16
    seed: int = 0


class World:
    """The cache of a case, filled through the kernel that the model fills it with."""

    def __init__(self, case: Case, *, dirt: float = float("nan")) -> None:
        chance = torch.Generator().manual_seed(case.seed)
        heads, kv_heads = case.heads
        self.case = case
        self.kind = torch.bfloat16 if case.dtype == "bf16" else torch.float32
        sizes = [-(-context // case.block_size) for _, context in case.rows]
        shape = Architecture(
            "llama", 1, 16, heads, kv_heads, case.head_dim, 16, 16, 8192, 1e4, 1e-5
        )
        self.arena = Arena.of_blocks(shape, case.dtype, sum(sizes) + 1, case.block_size)
        # What earlier owners left in the cache must not matter, not even if it is NaN.
        for items in (self.arena.keys, self.arena.values):
            items[:] = _items(torch.full(items.shape, dirt, dtype=self.kind))
        order = torch.randperm(sum(sizes), generator=chance).numpy()
        self.tables = np.zeros((len(sizes), max(sizes)), np.int32)
        for i, size in enumerate(sizes):
            self.tables[i, :size], order = order[:size], order[size:]
        self.q, self.k, self.v = [], [], []
        for i, (new, context) in enumerate(case.rows):
            draw = [(new, heads), (context, kv_heads), (context, kv_heads)]
            q, k, v = (
                torch.randn(n, h, case.head_dim, generator=chance).to(self.kind) for n, h in draw
            )
            self.q.append(q), self.k.append(k), self.v.append(v)
            self._fill(i, k, v)

    def _fill(self, i: int, k: torch.Tensor, v: torch.Tensor) -> None:
        context, kv_heads, dims = k.shape
        size = self.case.block_size
        positions = np.arange(context)
        slots = self.tables[i, positions // size].astype(np.int64) * size + positions % size
        qkv = torch.cat([torch.zeros(context, kv_heads, dims, dtype=self.kind), k, v], 1)
        qkv = qkv.contiguous()
        still = np.zeros((context, dims // 2), np.float32)
        none = np.empty(0, np.float32)
        threads = numba.get_num_threads()
        cpu.rope_and_store(
            qkv.data_ptr(), slots, still + 1, still, none, none, 1e-5,
            self.arena.keys[0], self.arena.values[0],
            np.empty((context, kv_heads, dims), self.arena.keys.dtype),
            np.empty((threads, dims), np.float32), threads,
        )  # fmt: skip

    def attend(self, which: Sequence[int]) -> list[torch.Tensor]:
        """The kernel's output for the sequences `which`, as one batch."""
        (heads, kv_heads), dims = self.case.heads, self.case.head_dim
        rows = np.array([self.case.rows[i] for i in which], np.int32)
        lens, contexts = rows[:, 0].copy(), rows[:, 1].copy()
        starts = np.cumsum(lens, dtype=np.int32) - lens
        layout = Layout.of(
            self.tables[list(which)], starts, lens, contexts,
            block_size=self.case.block_size, heads=heads, kv_heads=kv_heads,
        )  # fmt: skip
        q = _items(torch.cat([self.q[i] for i in which]))
        out = paged_attention(
            q, self.arena.keys[0], self.arena.values[0], layout, dims**-0.5,
            scratch=scratch_for(heads, kv_heads, dims), out_TNH=np.zeros_like(q),
        )  # fmt: skip
        return list(torch.from_numpy(out).view(self.kind).split(lens.tolist()))

    def expected(self, i: int) -> torch.Tensor:
        scale = self.case.head_dim**-0.5
        return reference.attention(self.q[i], self.k[i], self.v[i], scale)


def _items(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.contiguous()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def check(case: Case) -> None:
    world = World(case)
    for i, got in enumerate(world.attend(range(len(case.rows)))):
        wrong = (got.float() - world.expected(i)).abs().max().item()
        assert wrong <= TOLERANCE[case.dtype], (i, wrong)


sequences = st.integers(1, 300).flatmap(
    lambda context: st.tuples(st.integers(1, context) | st.just(1), st.just(context))
)


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        Case,
        dtype=st.sampled_from(["fp32", "bf16"]),
        rows=st.lists(sequences, min_size=1, max_size=5).map(tuple),
        heads=st.sampled_from(HEADS),
        head_dim=st.sampled_from([16, 48, 64, 80, 128]),
        block_size=st.sampled_from([16, 32, 48]),
        seed=st.integers(0, 1000),
    )
)
def test_any_mix_of_decodes_prompts_and_chunks_equals_plain_attention(case: Case):
    check(case)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_contexts_longer_than_a_part_are_joined_from_their_parts(dtype: str):
    part = paged.PART_KEYS
    check(Case(dtype, ((1, part + 1), (1, 2 * part), (40, part + 20), (3, 2 * part + 5))))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_row_is_the_same_bit_for_bit_alone_and_in_any_batch(dtype: str):
    case = Case(dtype, ((1, 256), (33, 50), (1, 1), (1, paged.PART_KEYS + 9), (70, 200)))
    world = World(case)
    together = world.attend(range(5))
    for i in range(5):
        assert torch.equal(world.attend([i])[0], together[i])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_chunk_of_a_prompt_is_the_same_bit_for_bit_as_the_whole(dtype: str):
    context = paged.PART_KEYS + 60
    world = World(Case(dtype, ((130, context),)))
    whole = world.attend([0])[0]
    for begin, end in ((0, 1), (1, 8), (8, 130)):
        part = World(Case(dtype, ((130, context),)))
        part.case = replace(part.case, rows=((end - begin, context - 130 + end),))
        part.q = [part.q[0][begin:end]]
        assert torch.equal(part.attend([0])[0], whole[begin:end])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_number_of_threads_changes_no_bit(dtype: str):
    world = World(Case(dtype, ((1, 300), (90, 1100), (5, 5))))
    several, before = world.attend(range(3)), numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = world.attend(range(3))
    finally:
        numba.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(several, alone, strict=True))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_huge_scores_neither_overflow_nor_vanish(dtype: str):
    world = World(Case(dtype, ((1, 200),)))
    world.q[0] *= 300
    got = world.attend([0])[0].float()
    assert torch.isfinite(got).all()
    # Scores reach a thousand, where fp32 steps by 6e-5, and so do the weights relatively.
    assert (got - world.expected(0)).abs().max() <= TOLERANCE[dtype] + 5e-4


@given(
    st.lists(sequences, min_size=1, max_size=6),
    st.sampled_from(HEADS),
)
def test_units_cover_each_row_and_key_of_each_head_once(rows, heads):
    rows = [*rows, (30, 2 * paged.PART_KEYS + 10)]
    lens = np.array([new for new, _ in rows], np.int32)
    contexts = np.array([context for _, context in rows], np.int32)
    starts = np.cumsum(lens, dtype=np.int32) - lens
    tables = np.zeros((len(rows), 200), np.int32)
    layout = Layout.of(
        tables, starts, lens, contexts, block_size=16, heads=heads[0], kv_heads=heads[1]
    )
    read = np.zeros((lens.sum(), heads[1], contexts.max()), int)
    for s, first, count, head, begin, end, _ in layout.units:
        assert starts[s] <= first < first + count <= starts[s] + lens[s]
        read[first : first + count, head, begin:end] += 1
    for s, (new, context) in enumerate(rows):
        for i in range(new):
            own = read[starts[s] + i]
            assert (own[:, : context - new + i + 1] == 1).all(), "every visible key once"
            assert own.max() == 1
    work = layout.units[:, 2] * (layout.units[:, 5] - layout.units[:, 4])
    assert (np.diff(work) <= 0).all(), "heaviest first"
