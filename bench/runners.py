"""The engine's model and cache without a scheduler, for benchmarks of logits and of step times.

Law of this file: it alone knows how the engine builds a model, a cache and a runner, so that what
is measured is built as `serving.engine.loop` builds it. `bench/step.py` and `bench/quality.py`
call it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Model, cache_dtype, stored_dtype
from ridgeline.serving.engine.model_files import ModelFiles
from ridgeline.serving.engine.runner import Rows, Runner, use_threads

BLOCK = 16
Floats = npt.NDArray[np.float32]


def blocks_for(sequences: int, tokens: int) -> int:
    """Cache blocks that hold so many sequences of so many tokens."""
    return sequences * -(-tokens // BLOCK)


def table(sequence: int, tokens: int) -> list[int]:
    """The block table of the n-th of sequences of at most `tokens` tokens."""
    blocks = -(-tokens // BLOCK)
    return list(range(sequence * blocks, (sequence + 1) * blocks))


def tensors_of(files: ModelFiles, dtype: str) -> dict[str, torch.Tensor]:
    """A model's weights as the engine takes them from its files."""
    return files.tensors(stored_dtype(dtype))


def runner_of(
    architecture: Architecture,
    tensors: Mapping[str, torch.Tensor],
    dtype: str,
    kv_dtype: str = "auto",
    *,
    blocks: int,
    threads: int = 0,
) -> Runner:
    """A runner over a cache of `blocks` blocks, with every core unless told otherwise."""
    kept = cache_dtype(dtype, kv_dtype)
    count = use_threads(threads)
    model = Model(architecture, tensors, dtype, cache_dtype=kept, threads=count)
    return Runner(model, Arena.of_blocks(architecture, kept, blocks, BLOCK))


def logits_of(runner: Runner, token_ids: Sequence[int], start: int, wanted: int) -> Floats:
    """Logits [wanted, V] of the last rows of one sequence's tokens from `start` on, block 0 on."""
    rows = Rows(token_ids, start, table(0, start + len(token_ids)), samples=wanted)
    found: Floats = np.array(runner.run([rows], []), np.float32)
    return found
