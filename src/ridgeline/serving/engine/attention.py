"""The seam: one narrow function between the model and whatever computes attention.

The law of this file: `paged_attention` is all that the model knows of attention. It takes rows of
any mix of decodes, prompts and chunks, reads the paged cache in place, and returns the same for a
row whatever else is in the batch. A compiled kernel replaces it by offering the same function;
`kernels.paged` is the portable one.

One flat batch of T rows, S sequences; sequence s owns rows starts[s] .. starts[s] + lens[s], the
last of its `contexts[s]` cached positions:

    rows       | a | b b b b b b | c | d d d |
    starts     0   1             7   8           lens  1 6 1 3
"""

from dataclasses import dataclass, field

import numba
import numpy as np
import numpy.typing as npt

from ridgeline.kernels import paged
from ridgeline.serving.engine.cache import TOKENS, Items

Int32 = npt.NDArray[np.int32]


def tile_positions(group: int) -> int:
    """Query positions of one unit: about 24 query rows, and a multiple of four of them."""
    return 4 * max(1, round(6 / group))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each sequence's rows and cached blocks are, and how the work is cut up.

    `units` and `merges` are `kernels.paged.plan`'s; they hold for every layer of a step. `pairs`
    counts query rows times keys: the size of the work.
    """

    block_tables: Int32
    query_starts: Int32
    query_lens: Int32
    context_lens: Int32
    blocks_per: int
    units: Int32
    merges: Int32
    partials: int
    pairs: int
    ends: Int32

    @classmethod
    def of(
        cls, block_tables: Int32, query_starts: Int32, query_lens: Int32,
        context_lens: Int32, *, block_size: int, heads: int, kv_heads: int,
    ) -> "Layout":  # fmt: skip
        """Cut a batch into units for the given numbers of heads, heaviest first."""
        where = (query_starts, query_lens, context_lens)
        positions = tile_positions(heads // kv_heads)
        none = np.empty((0, paged.UNIT_FIELDS), np.int32)
        empty = np.empty((0, paged.MERGE_FIELDS), np.int32)
        costs = np.empty(0, np.int32)
        count, joined, partials = paged.plan(*where, kv_heads, positions, none, empty, costs)
        units = np.empty((count, paged.UNIT_FIELDS), np.int32)
        merges = np.empty((joined, paged.MERGE_FIELDS), np.int32)
        costs = np.empty(count, np.int32)
        paged.plan(*where, kv_heads, positions, units, merges, costs)
        units = units[np.argsort(-costs, kind="stable")]
        ends = query_starts + query_lens
        return cls(
            block_tables, *where, block_size // TOKENS, units, merges, partials,
            int(costs.sum()) * (heads // kv_heads), ends,
        )  # fmt: skip


@dataclass(slots=True)
class Scratch:
    """What attention needs beside its operands, kept between calls and grown on demand."""

    heads: int
    kv_heads: int
    head_dim: int
    threads: int
    counter: npt.NDArray[np.int64] = field(init=False)
    floats: npt.NDArray[np.float32] = field(init=False)
    starts: npt.NDArray[np.int64] = field(init=False)
    partial: npt.NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        rows = self._unit_rows
        self.counter = np.zeros(1, np.int64)
        self.floats = np.empty(
            (self.threads, rows * (2 * self.head_dim + paged.KEYS + 2)), np.float32
        )
        self.starts = np.empty((self.threads, paged.KEYS // TOKENS), np.int64)
        self.partial = np.empty((0, rows, self.head_dim + 2), np.float32)

    @property
    def _unit_rows(self) -> int:
        group = self.heads // self.kv_heads
        return tile_positions(group) * group

    def partials(self, count: int) -> npt.NDArray[np.float32]:
        """Room for `count` partial results."""
        if self.partial.shape[0] < count:
            self.partial = np.empty((count, self._unit_rows, self.head_dim + 2), np.float32)
        return self.partial


def paged_attention(
    q_TNH: Items, k_cache: Items, v_cache: Items, layout: Layout, scale: float,
    *, scratch: Scratch, out_TNH: Items,
) -> Items:  # fmt: skip
    """softmax(q k^T * scale) v of every row, causally, over its own sequence's cached keys.

    `k_cache` and `v_cache` are one layer of the arena (drawn in `cache`), already holding the
    keys and values of this step's rows. Items of all arrays are of one type, float32 or bf16
    bits; sums are fp32. Writes and returns `out_TNH`.
    """
    paged.attention(
        q_TNH, k_cache, v_cache, layout.block_tables, layout.ends, layout.context_lens,
        layout.units, layout.merges, scratch.counter, scratch.floats, scratch.starts,
        scratch.partials(layout.partials), out_TNH, layout.blocks_per, scale,
        numba.get_num_threads(),
    )  # fmt: skip
    return out_TNH


def scratch_for(heads: int, kv_heads: int, head_dim: int) -> Scratch:
    """Scratch for the threads that numba uses now."""
    return Scratch(heads, kv_heads, head_dim, numba.get_num_threads())
