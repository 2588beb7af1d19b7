"""Run in a process of its own: torch and the compiled kernels, stage by stage, one line each.

Whatever is wrong with them may end the process; the last line then says where it was. `computing`
starts it and reads the lines.
"""

import json
import sys
from typing import Any


def say(stage: str, **told: Any) -> None:
    """One line to whoever started this."""
    sys.stdout.write(json.dumps({"stage": stage, **told}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """All stages, until one fails."""
    say("kernels")
    from ridgeline.errors import ModelError
    from ridgeline.kernels.library import levels

    try:
        found = levels()
    except ModelError as error:
        say("kernels", problem=error.problem, remedy=error.remedy)
        found = []
    else:
        say("kernels", levels=found)
    say("torch")
    try:
        import torch
    except ImportError as error:
        say("torch", missing=str(error))
        return
    ones = torch.ones(64, 64)
    right = bool((ones @ ones == 64).all())
    say("torch", version=torch.__version__, right=right, threads=torch.get_num_threads())
    _choose()
    for level in found:
        say("step", level=level)
        say("step", level=level, difference=_difference(level))
    say("done")


def _choose() -> None:
    """What `RIDGELINE_KERNELS` asks for is here."""
    from ridgeline.errors import ModelError
    from ridgeline.kernels.choose import kernels

    say("choice")
    try:
        say("choice", kernels=kernels())
    except ModelError as error:
        say("choice", problem=error.problem, remedy=error.remedy)


def _difference(level: str) -> float:
    """How far one step of a small decoder is from torch's, as a share."""
    import numpy as np
    import torch

    from ridgeline.kernels.decoder import TOKENS, Batch, Cache, LayerWeights, Shape, Weights
    from ridgeline.kernels.native_decoder import NativeDecoder
    from ridgeline.kernels.portable import PortableDecoder

    hidden, heads, head_dim, ffn, vocab, rows = 64, 2, 32, 96, 50, 7
    chance = torch.Generator().manual_seed(0)

    def matrix(out: int, width: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(out, width, generator=chance) / width**0.5
        return drawn

    angles = (1e4 ** -np.linspace(0, 1, head_dim // 2)).astype(np.float32)
    shape = Shape(1, hidden, heads, heads, head_dim, ffn, vocab, 1e-5, angles)
    ones, across = torch.ones(hidden), heads * head_dim
    qkv, out = matrix(3 * across, hidden), matrix(hidden, across)
    gate_up, down = matrix(2 * ffn, hidden), matrix(hidden, ffn)
    layer = LayerWeights(ones, qkv, None, None, None, out, ones, gate_up, down)
    weights = Weights(matrix(vocab, hidden), [layer], ones, matrix(vocab, hidden))
    numbers = np.arange(rows, dtype=np.int32)
    whole, zero = np.array([rows], np.int32), np.zeros(1, np.int32)
    batch = Batch(numbers, zero, whole, whole, zero[None], numbers)

    def logits(decoder: Any) -> Any:
        keys = np.zeros((1, 1, heads, head_dim // 2, 2, TOKENS), np.float32)
        values = np.zeros((1, 1, heads, TOKENS // 2, 2, head_dim), np.float32)
        return decoder.forward(batch, Cache(keys, values, None, None, 1)).copy()

    native = NativeDecoder(shape, weights, dtype="fp32", cache_dtype="fp32", level=level, threads=1)
    got, wanted = logits(native), logits(PortableDecoder(shape, weights, "fp32"))
    return float(np.sqrt(np.square(got - wanted).mean() / np.square(wanted).mean()))


if __name__ == "__main__":
    main()
