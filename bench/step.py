"""How long one engine step takes: decodes by batch and context, prompts by length.

    python bench/step.py [--quick] [--json] [--dtype bf16|int8|fp32] [--kv-dtype int8]

Law of this file: no sockets, no sampler, no scheduler; only what `runner` does with a decision.
Weights are random in the default model's shape, since a step's time does not depend on them. Each
time is the best of its repeats beside the machine's floor, measured in the same run, so that a
ratio of 1 is the best that memory and arithmetic allow. With an int8 cache the longest case is also
timed in turn with the same model over a cache of its own dtype.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import median

import torch

from floor import SMOLLM2_135M, Floors, measure
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.model import DTYPES, cache_dtype
from ridgeline.serving.engine.runner import Rows, Runner
from rows import Better, Record, Row, add_options, compared, report, say, usable_cores
from runners import blocks_for, runner_of, table

LONG = (16, 2048)
DECODES = ((1, 256), (4, 256), (16, 256), (32, 256), (32, 640), LONG, (1, 4096))
PROMPTS = (128, 512)
LEAST_REPEATS = 5
BLOCKS = max(blocks_for(batch, context) for batch, context in DECODES)


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
    return [Rows([100 + i], context - 1, table(i, context), samples=1) for i in range(batch)]


def prompt(length: int) -> list[Rows]:
    """One whole prompt."""
    return [Rows(list(range(length)), 0, table(0, length), samples=1)]


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


def ready(dtype: str, kv_dtype: str, threads: int) -> tuple[Runner, dict[str, float]]:
    """A runner that has run once, and how long its stages took, in seconds."""
    weights = random_weights(SMOLLM2_135M)
    began_s = time.perf_counter()
    runner = runner_of(SMOLLM2_135M, weights, dtype, kv_dtype, blocks=BLOCKS, threads=threads)
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


def cache_row(small: Runner, wide: Runner, dtype: str, least_s: float) -> Row:
    """The longest case over an int8 cache beside the dtype's own, in turn; medians of each turn."""
    rows = decodes(*LONG)
    turns = [
        (
            1e3 * median(times_s(small, rows, least_s / 3)),
            1e3 * median(times_s(wide, rows, least_s / 3)),
        )
        for _ in range(3)
    ]
    case = f"{dtype} decode {LONG[0]} x context {LONG[1]}, int8 cache beside {cache_dtype(dtype)}"
    ours, theirs = zip(*turns, strict=True)
    return compared(case, "ms", ours, theirs, better=Better.LESS)


def main() -> int:
    """Measures and prints the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--kv-dtype", choices=["auto", "int8"], default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0: every core")
    add_options(parser)
    options = parser.parse_args()
    say("measuring the machine ...")
    machine = measure(SMOLLM2_135M, quick=options.quick)
    floors = Floors(
        SMOLLM2_135M, machine, options.dtype, "int8" if options.kv_dtype == "int8" else "bf16"
    )
    runner, stages = ready(options.dtype, options.kv_dtype, options.threads)
    say("measuring steps ...")
    least_s = 1.0 if options.quick else 4.0
    found, medians = measured_rows(runner, floors, least_s)
    if options.kv_dtype == "int8":
        wide, _ = ready(options.dtype, "auto", options.threads)
        found.append(cache_row(runner, wide, options.dtype, least_s))
    details = {"machine": floors.machine.to_dict(), "median_s": medians, **stages}
    threads = options.threads or usable_cores()
    notes = [
        f"{threads} threads, {runner.model.kernels}. Best of the repeats.",
        f"Weights {stages['weights_s']:.1f} s, first step {stages['first_step_s']:.1f} s.",
    ]
    record = Record("step", found, options.quick, notes, details)
    return report(record, as_json=options.json, ours="best", peer="floor")


if __name__ == "__main__":
    sys.exit(main())
