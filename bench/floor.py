"""What this machine could do at best: the floor under every step time, measured in the same run.

Law of this file: a floor is computed from two measured rates (memory read, large matrix product)
and the model's shape, never from a data sheet, and every formula says what it leaves out, so that
a share of the floor above 1 means a wrong measurement. `bench/engine.py` calls `measure` and
`workload_tokens_per_s`; alone, `python bench/floor.py` prints the floors of the default model.

The formulas are the roofline model's (Williams, Waterman and Patterson, 2009): an operation takes
at least its bytes over the memory's rate, and at least its FLOPs over the arithmetic's rate.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from ridgeline.serving.engine.architecture import Architecture
from rows import Record, Row, add_options, measured, report, say, usable_cores

SMOLLM2_135M = Architecture(
    family="llama",
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=1536,
    vocab=49152,
    context=8192,
    rope_theta=100000.0,
    rms_eps=1e-5,
    tied_head=True,
)
WEIGHT_BYTES = {"fp32": 4, "bf16": 2, "int8": 1}
READ_BYTES = 1 << 30  # far beyond any cache
GEMM_SIDE = 2048


@dataclass(frozen=True, slots=True)
class Machine:
    """The rates everything here is derived from: the best seen, since a floor must be a bound.

    `weights_read_bytes_per_s` is measured, for each dtype, on an array as large as the model's
    weights, read again and again as a decode loop does: part of a small model stays in a large
    last-level cache. `read_bytes_per_s` is a read far beyond any cache, and
    `typical_read_bytes_per_s` its median, for the reader: a shared machine's best may be half
    again as much.
    """

    read_bytes_per_s: float
    typical_read_bytes_per_s: float
    weights_read_bytes_per_s: dict[str, float]
    gemm_flop_per_s: dict[str, float]
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """The rates as JSON writes them."""
        return asdict(self)


def _times_s(operation: Callable[[], object], least_s: float) -> list[float]:
    """How long the operation took each time, repeated for `least_s` and at least 4 times."""
    operation()
    taken: list[float] = []
    end_s = time.perf_counter() + least_s
    while len(taken) < 4 or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        operation()
        taken.append(time.perf_counter() - began_s)
    return taken


def _reads_bytes_per_s(size_bytes: int, least_s: float) -> list[float]:
    cells = torch.ones(size_bytes // 4)
    return [size_bytes / taken_s for taken_s in _times_s(cells.sum, least_s)]


def _gemm(dtype: str) -> Callable[[], object]:
    """A square product, with the weights laid out beforehand as oneDNN likes them best."""
    if dtype == "int8":
        # Unsigned activations: with signed ones oneDNN takes a reference kernel.
        rows = torch.randint(0, 255, (GEMM_SIDE, GEMM_SIDE), dtype=torch.uint8)
        weights = torch.randint(-127, 127, (GEMM_SIDE, GEMM_SIDE), dtype=torch.int8)
        packed = torch.ops.onednn.qlinear_prepack(weights, [GEMM_SIDE, GEMM_SIDE])
        scales = torch.ones(GEMM_SIDE)
        zeros = torch.zeros(GEMM_SIDE, dtype=torch.int32)
        return lambda: torch.ops.onednn.qlinear_pointwise(
            rows, 0.02, 128, packed, scales, zeros, None, 1.0, 0, torch.bfloat16, "none", [], ""
        )
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    left, right = torch.randn(2, GEMM_SIDE, GEMM_SIDE).to(kind)
    return lambda: left @ right.t()


def measure(model: Architecture, *, quick: bool = False) -> Machine:
    """Measures this machine with every core we may use; takes about 12 s (quick: 5 s).

    Whatever else runs makes the floor look slower than it is: callers check for noise.
    """
    threads, before = usable_cores(), torch.get_num_threads()
    least_s = 0.6 if quick else 1.5
    torch.set_num_threads(threads)
    try:
        reads = _reads_bytes_per_s(READ_BYTES, 2 * least_s)
        weights = {
            dtype: max(_reads_bytes_per_s(weights_bytes(model, dtype), least_s))
            for dtype in WEIGHT_BYTES
        }
        flop = 2 * GEMM_SIDE**3
        rates = {dtype: flop / min(_times_s(_gemm(dtype), least_s)) for dtype in WEIGHT_BYTES}
    finally:
        torch.set_num_threads(before)
    return Machine(max(reads), median(reads), weights, rates, threads)


def layer_weights(model: Architecture) -> int:
    """Elements of all the layers' matrices: q, k, v, o and the gated feed-forward."""
    qkv = model.hidden * (model.heads + 2 * model.kv_heads) * model.head_dim
    out = model.heads * model.head_dim * model.hidden
    return model.layers * (qkv + out + 3 * model.hidden * model.ffn)


def head_weights(model: Architecture) -> int:
    """Elements of the head: one read gives every next-token score."""
    return model.vocab * model.hidden


def weights_bytes(model: Architecture, dtype: str) -> int:
    """All matrices in one dtype. Leaves out norms (0.03 %) and quantisation scales."""
    return (layer_weights(model) + head_weights(model)) * WEIGHT_BYTES[dtype]


def attention_flop(model: Architecture, queries: float, context: float) -> float:
    """FLOPs of scores and weighted values for `queries` rows that each see `context` keys."""
    return 4 * queries * context * model.heads * model.head_dim * model.layers


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors of one model in one dtype on one machine, with a cache of bf16 or int8."""

    model: Architecture
    machine: Machine
    dtype: str
    kv_dtype: str = "bf16"

    @property
    def weights_read_s(self) -> float:
        """Reading every matrix once. Leaves out the embedding rows of a prompt."""
        rate = self.machine.weights_read_bytes_per_s[self.dtype]
        return weights_bytes(self.model, self.dtype) / rate

    @property
    def token_flop(self) -> float:
        """FLOPs of one token through all matrices: one multiply and one add an element."""
        return 2.0 * (layer_weights(self.model) + head_weights(self.model))

    @property
    def _flop_per_s(self) -> float:
        return self.machine.gemm_flop_per_s[self.dtype]

    @property
    def _attention_flop_per_s(self) -> float:
        """Attention runs in the cache's dtype unless the model computes in a wider one."""
        return self.machine.gemm_flop_per_s["fp32" if self.dtype == "fp32" else "bf16"]

    def kv_read_s(self, batch: float, context: float) -> float:
        """One step's attention: each sequence's cached keys and values are read once."""
        return batch * context * self.kv_bytes_per_token / self.machine.read_bytes_per_s

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of one token in all layers; int8 ones have a scale for each head."""
        if self.kv_dtype == "bf16":
            return self.model.kv_bytes_per_token
        head_bytes = self.model.head_dim + 4
        return 2 * self.model.layers * self.model.kv_heads * head_bytes

    def decode_step_s(self, batch: int, context: float) -> float:
        """One token for each of `batch` sequences of `context` tokens.

        Linear layers and attention alternate layer by layer, so their floors add up; within the
        linear layers the slower of reading and computing binds.
        """
        linear_s = max(self.weights_read_s, batch * self.token_flop / self._flop_per_s)
        return linear_s + self.kv_read_s(batch, context)

    def prompt_flop(self, prompt: int) -> float:
        """FLOPs of the matrices for one prompt: all layers for each token, the head for one."""
        return 2.0 * (layer_weights(self.model) * prompt + head_weights(self.model))

    def prompt_attention_s(self, prompt: int) -> float:
        """Causal attention of a prompt: a token sees half the prompt on average."""
        return attention_flop(self.model, prompt, prompt / 2) / self._attention_flop_per_s

    def prefill_s(self, prompt: int) -> float:
        """One prompt alone, to its first token."""
        linear_s = max(self.weights_read_s, self.prompt_flop(prompt) / self._flop_per_s)
        return linear_s + self.prompt_attention_s(prompt)

    def workload_s(self, prompt: int, output: int, concurrency: int) -> float:
        """`concurrency` requests side by side, each of `prompt` + `output` tokens, to the end.

        Alone, a request's prompt and its steps follow each other. Side by side, an engine may
        compute one request's prompt in the step in which others decode, so all FLOPs share the
        `output` reads of the weights that the longest chain of steps needs. Attention is added
        to both: the cache read at the mean context, and the prompts' own.
        """
        context = prompt + output / 2
        decodes_s = (output - 1) * self.kv_read_s(concurrency, context)
        if concurrency == 1:
            return self.prefill_s(prompt) + (output - 1) * self.decode_step_s(1, context)
        flop = concurrency * (self.prompt_flop(prompt) + (output - 1) * self.token_flop)
        linear_s = max(output * self.weights_read_s, flop / self._flop_per_s)
        return linear_s + decodes_s + concurrency * self.prompt_attention_s(prompt)

    def workload_tokens_per_s(self, prompt: int, output: int, concurrency: int) -> float:
        """Output tokens a second that no engine on this machine can exceed in a closed loop."""
        return concurrency * output / self.workload_s(prompt, output, concurrency)


def machine_rows(machine: Machine) -> list[Row]:
    """The measured rates."""
    reads = [
        measured("memory read, best", "GB/s", machine.read_bytes_per_s / 1e9),
        measured("memory read, median", "GB/s", machine.typical_read_bytes_per_s / 1e9),
    ]
    reads += [
        measured(f"read of the weights, {dtype}", "GB/s", rate / 1e9)
        for dtype, rate in machine.weights_read_bytes_per_s.items()
    ]
    gemms = [
        measured(f"matrix product {GEMM_SIDE}^3, {dtype}", "GFLOP/s", rate / 1e9)
        for dtype, rate in machine.gemm_flop_per_s.items()
    ]
    return reads + gemms


def floor_rows(model: Architecture, machine: Machine) -> list[Row]:
    """Step and workload floors for each dtype, at the sizes `bench/engine.py` measures."""
    found: list[Row] = []
    for dtype in WEIGHT_BYTES:
        floors = Floors(model, machine, dtype)
        steps = {
            f"{dtype} decode step, 1 x context 256": floors.decode_step_s(1, 256),
            f"{dtype} decode step, 16 x context 256": floors.decode_step_s(16, 256),
            f"{dtype} decode step, 32 x context 256": floors.decode_step_s(32, 256),
            f"{dtype} prompt of 512": floors.prefill_s(512),
        }
        found += [measured(case, "ms", 1e3 * floor_s) for case, floor_s in steps.items()]
        for prompt, concurrency in ((128, 1), (128, 16), (128, 32), (512, 32)):
            rate = floors.workload_tokens_per_s(prompt, 128, concurrency)
            found.append(measured(f"{dtype} p{prompt} + 128, c{concurrency}", "tokens/s", rate))
    return found


def main() -> int:
    """Measures and prints the floors of the default model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    options = parser.parse_args()
    say("measuring memory and matrix products ...")
    machine = measure(SMOLLM2_135M, quick=options.quick)
    record = Record(
        bench="floor",
        rows=machine_rows(machine) + floor_rows(SMOLLM2_135M, machine),
        quick=options.quick,
        notes=["Floors of SmolLM2-135M; pN is prompt tokens, cN requests side by side."],
        details={"machine": machine.to_dict()},
    )
    return report(record, as_json=options.json, ours="floor")


if __name__ == "__main__":
    sys.exit(main())
