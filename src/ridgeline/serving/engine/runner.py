"""A decision becomes tensors, and runs.

The law of this file: it turns rows of sequences into one flat batch, in under half a
millisecond, and decides nothing. `loop` calls it once a step with what
`serving.policy.batch` decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch

from ridgeline.kernels import cpu
from ridgeline.serving.engine.attention import Layout
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Batch, Model


@dataclass(frozen=True, slots=True)
class Rows:
    """New rows of one sequence: `token_ids` at positions `start`, `start + 1`, ...

    `block_table` covers at least the positions up to the last row; what came before `start` is in
    the cache. `samples`: the last row's logits are wanted.
    """

    token_ids: Sequence[int] | npt.NDArray[np.int64]
    start: int
    block_table: Sequence[int]
    samples: bool


def use_threads(threads: int) -> int:
    """Give matrix products and kernels the same number of threads; 0 means all. Returns it."""
    settings: Any = numba.config
    most = int(settings.NUMBA_NUM_THREADS)
    count = min(threads, most) if threads > 0 else most
    # numba first: when it starts its threads it sets OpenMP's number to all, which torch obeys.
    numba.set_num_threads(count)
    torch.set_num_threads(count)
    return count


class Runner:
    """Runs batches of `model` over `arena`."""

    def __init__(self, model: Model, arena: Arena) -> None:
        self.model = model
        self.arena = arena

    def run(self, rows: Sequence[Rows], copies: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Copy blocks (source, target) in order, then run the rows.

        Returns logits fp32 [rows that sample, vocabulary], in the order of `rows`.
        """
        for source, target in copies:
            self.arena.copy_block(source, target)
        return self.model.forward(self.batch(rows), self.arena)

    def batch(self, rows: Sequence[Rows]) -> Batch:
        """The flat batch of some sequences' new rows; at least one."""
        count, size = len(rows), self.arena.block_size
        lens = np.fromiter((len(r.token_ids) for r in rows), np.int32, count)
        contexts = np.fromiter((r.start for r in rows), np.int32, count) + lens
        ends = np.cumsum(lens, dtype=np.int32)
        blocks = (contexts + (size - 1)) // size
        tables = np.zeros((count, int(blocks.max())), np.int32)
        for i, r in enumerate(rows):
            tables[i, : blocks[i]] = r.block_table[: blocks[i]]
        total = int(ends[-1])
        ids = np.fromiter(chain.from_iterable(r.token_ids for r in rows), np.int64, total)
        positions, slots = np.empty(total, np.int64), np.empty(total, np.int64)
        cpu.place_rows(tables, lens, contexts, size, positions, slots)
        wanted = ends[np.fromiter((r.samples for r in rows), np.bool_, count)].astype(np.int64) - 1
        return Batch(
            ids, positions, slots, self._layout(tables, ends - lens, lens, contexts), wanted
        )

    def _layout(
        self,
        tables: npt.NDArray[np.int32],
        starts: npt.NDArray[np.int32],
        lens: npt.NDArray[np.int32],
        contexts: npt.NDArray[np.int32],
    ) -> Layout:
        architecture = self.model.architecture
        return Layout.of(
            tables, starts, lens, contexts, block_size=self.arena.block_size,
            heads=architecture.heads, kv_heads=architecture.kv_heads,
        )  # fmt: skip
