"""A decision becomes arrays, and runs.

The law of this file: it turns rows of sequences into one flat batch, in under half a
millisecond, and decides nothing. `loop` calls it once a step with what
`serving.policy.batch` decided.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from ridgeline.kernels.decoder import Batch, Floats
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Model


@dataclass(frozen=True, slots=True)
class Rows:
    """New rows of one sequence: `token_ids` at positions `start`, `start + 1`, ...

    `block_table` covers at least the positions up to the last row; what came before `start` is in
    the cache. The logits of the last `samples` rows are wanted: of none, one, or one and a guess's.
    """

    token_ids: Sequence[int] | npt.NDArray[np.int64]
    start: int
    block_table: Sequence[int]
    samples: int


def use_threads(threads: int) -> int:
    """The number of threads to compute with: as asked, at most every core we may use; 0 means all.

    torch gets the same, for what it does while weights are loaded, and on the portable path.
    """
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(threads, most) if threads > 0 else most
    torch.set_num_threads(count)
    return count


class Runner:
    """Runs batches of `model` over `arena`."""

    def __init__(self, model: Model, arena: Arena) -> None:
        self.model = model
        self.arena = arena

    def run(self, rows: Sequence[Rows], copies: Sequence[tuple[int, int]]) -> Floats:
        """Copy blocks (source, target) in order, then run the rows.

        Returns logits fp32 [rows that sample, vocabulary], in the order of `rows` and positions;
        the next run overwrites them.
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
        ids = np.fromiter(chain.from_iterable(r.token_ids for r in rows), np.int32, total)
        samples = np.fromiter((r.samples for r in rows), np.int32, count)
        lines = np.cumsum(samples, dtype=np.int32)  # of logits, up to and with a sequence's own
        wanted = np.arange(lines[-1], dtype=np.int32) + np.repeat(ends - lines, samples)
        return Batch(ids, ends - lens, lens, contexts, tables, wanted)
