"""How long one engine step takes: decodes by batch and context, prompts by length.

Law of this file: no sockets, no sampler, no scheduler; only what `runner` does with a decision.
Weights are random in the default model's shape, since a step's time does not depend on them. Each
time is the best of its repeats beside the machine's floor, measured in the same run, so that a
ratio of 1 is the best that memory and arithmetic allow.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from statistics import median

import torch

from floor import SMOLLM2_135M, Floors, measure
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.environment import engine_environment
from ridgeline.serving.engine.model import Model
from ridgeline.serving.engine.runner import Rows, Runner, use_threads
from rows import Better, Record, Row, add_options, compared, report, say

DECODES = ((1, 256), (4, 256), (16, 256), (32, 256), (32, 640), (1, 4096))
PROMPTS = (128, 512)
LEAST_REPEATS = 5
ARENA_BYTES = {"bf16": 1_200_000_000, "fp32": 2_400_000_000}


def random_weights(a: Architecture) -> dict[str, torch.Tensor]:
    """Every tensor that a tied Llama has, under Hugging Face's names."""
    chance = torch.Generator().manual_seed(0)
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    shapes = {
        "self_attn.q_proj": (q, a.hidden),
        "self_attn.k_proj": (kv, a.hidden),
        "self_attn.v_proj": (kv, a.hidden),
        "self_attn.o_proj": (a.hidden, q),
        "mlp.gate_proj": (a.ffn, a.hidden),
        "mlp.up_proj": (a.ffn, a.hidden),
        "mlp.down_proj": (a.hidden, a.ffn),
    }
    found = {
        f"model.layers.{i}.{name}.weight": torch.randn(shape, generator=chance) / a.hidden**0.5
        for i in range(a.layers)
        for name, shape in shapes.items()
    }
    norms = ["model.norm"] + [
        f"model.layers.{i}.{name}"
        for i in range(a.layers)
        for name in ("input_layernorm", "post_attention_layernorm")
    ]
    found |= {f"{name}.weight": torch.ones(a.hidden) for name in norms}
    found["model.embed_tokens.weight"] = torch.randn((a.vocab, a.hidden), generator=chance)
    return found


def decodes(batch: int, context: int) -> list[Rows]:
    """One new token for each of `batch` sequences that have `context` tokens with it."""
    blocks = -(-context // 16)
    return [
        Rows([100 + i], context - 1, list(range(i * blocks, (i + 1) * blocks)), samples=True)
        for i in range(batch)
    ]


def prompt(length: int) -> list[Rows]:
    """One whole prompt."""
    return [Rows(list(range(length)), 0, list(range(-(-length // 16))), samples=True)]


def times_s(runner: Runner, rows: Sequence[Rows], least_s: float) -> list[float]:
    """Times of a step repeated for `least_s`, without the first two."""
    for _ in range(2):
        runner.run(rows, [])
    taken: list[float] = []
    end_s = time.perf_counter() + least_s
    while len(taken) < LEAST_REPEATS or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        runner.run(rows, [])
        taken.append(time.perf_counter() - began_s)
    return taken


def ready(dtype: str) -> tuple[Runner, dict[str, float]]:
    """A runner that has run once, and how long its stages took, in seconds."""
    began_s = time.perf_counter()
    model = Model(SMOLLM2_135M, random_weights(SMOLLM2_135M), dtype)
    runner = Runner(model, Arena.of_size(SMOLLM2_135M, dtype, ARENA_BYTES[dtype], 16))
    packed_s = time.perf_counter()
    runner.run(decodes(1, 16), [])
    first_s = time.perf_counter() - packed_s
    return runner, {"weights_s": packed_s - began_s, "first_step_s": first_s}


def measured_rows(
    runner: Runner, floors: Floors, least_s: float
) -> tuple[list[Row], dict[str, float]]:
    """A row for each case, and each case's median in seconds."""
    cases = [
        (f"decode {batch} x context {context}", decodes(batch, context), floor)
        for batch, context in DECODES
        for floor in [floors.decode_step_s(batch, context)]
    ]
    cases += [(f"prompt of {n}", prompt(n), floors.prefill_s(n)) for n in PROMPTS]
    found, medians = [], {}
    for case, rows, floor_s in cases:
        taken_s = times_s(runner, rows, least_s)
        medians[case] = median(taken_s)
        best, floor = [1e3 * min(taken_s)], [1e3 * floor_s]
        found.append(compared(f"{floors.dtype} {case}", "ms", best, floor, better=Better.LESS))
    return found, medians


def enter_engine_environment() -> None:
    """Starts again where variables are missing that the engine process is always started with."""
    wanted = engine_environment()
    if not wanted.items() <= os.environ.items() and "RIDGELINE_STEP_AGAIN" not in os.environ:
        again = {**os.environ, **wanted, "RIDGELINE_STEP_AGAIN": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], again)


def main() -> int:
    """Measures and prints the steps."""
    enter_engine_environment()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=sorted(ARENA_BYTES), default="bf16")
    parser.add_argument("--threads", type=int, default=0, help="0: every core")
    add_options(parser)
    options = parser.parse_args()
    threads = use_threads(options.threads)
    say("measuring the machine ...")
    floors = Floors(SMOLLM2_135M, measure(SMOLLM2_135M, quick=options.quick), options.dtype)
    runner, stages = ready(options.dtype)
    say("measuring steps ...")
    found, medians = measured_rows(runner, floors, 1.0 if options.quick else 4.0)
    kernel = runner.model.linear_kernel
    details = {"machine": floors.machine.to_dict(), "median_s": medians, **stages}
    notes = [
        f"{threads} threads, matrix products by {kernel}. Best of the repeats.",
        f"Weights {stages['weights_s']:.1f} s, first step {stages['first_step_s']:.1f} s (with "
        "what had to be compiled).",
    ]
    record = Record("step", found, options.quick, notes, details)
    return report(record, as_json=options.json, ours="best", peer="floor")


if __name__ == "__main__":
    sys.exit(main())
