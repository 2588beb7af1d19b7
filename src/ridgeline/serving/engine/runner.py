"""A decision becomes arrays, and runs.

The law of this file: it turns rows of sequences into one flat batch, in under half a
millisecond, and decides nothing. `loop` calls it once a step with what
`serving.policy.batch` decided.
"""

import os
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from ridgeline.kernels.decoder import Batch, Floats, Int32
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Model


class Rows(msgspec.Struct, frozen=True):
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
        ids: list[int] = []
        wanted: list[int] = []
        starts, lens, contexts = [], [], []
        for r in rows:
            starts.append(len(ids))
            lens.append(len(r.token_ids))
            contexts.append(r.start + len(r.token_ids))
            ids.extend(r.token_ids)
            wanted += range(len(ids) - r.samples, len(ids))
        tables = _padded([r.block_table for r in rows])
        return Batch(
            _int32(ids), _int32(starts), _int32(lens), _int32(contexts), tables, _int32(wanted)
        )


def _padded(tables: Sequence[Sequence[int]]) -> Int32:
    """Rows of different lengths as one array, with zeros behind the shorter ones."""
    width = max(map(len, tables))
    flat: list[int] = []
    for table in tables:
        flat += table
        flat += [0] * (width - len(table))
    return _int32(flat).reshape(len(tables), width)


def _int32(values: Sequence[int]) -> Int32:
    # A list and one call: numpy's own arithmetic on a few numbers costs more than Python's.
    return np.fromiter(values, np.int32, len(values))
