"""How near the simulator comes to measured runs of vLLM, request by request.

    python bench/sim_vs_vllm.py [--data ../shared/data] [--quick] [--json]

Four runs of vLLM 0.19.0, 300 ShareGPT requests each at 10 a second, with their times (LLMServingSim
5daddb2, MIT). The arrivals, lengths and prompt blocks go in; the times of tokens are compared.
Limits of the engine (sequences, tokens a step, KV tokens where its log tells them) are the run's;
it decides ahead, as vLLM does by default since 0.14.

    catalog     the catalog's machine and its fit for vLLM, which was made on H100, H200 and B200
    described   the same with the bandwidths and latencies that the run's own file gives its machine
    calibrated  `described`, fitted to the first 100 requests (first to last token); the other 200
                are scored

TTFT and latency count from the client's asking, TPOT is of a request. Targets: means within 15 %,
calibrated within 5 %. LLMServingSim, whose files these are, published its own errors on all 300,
with layers profiled on these very GPUs; they stand beside ours as quoted.
"""

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.physics.step_time import StepTime
from ridgeline.serving.fake.timing import Machine, machine
from ridgeline.serving.simulate.calibrate import learn
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, read_trace
from rows import Better, Record, Row, add_options, compared, report, say

DATA = Path(__file__).resolve().parents[2] / "shared/data"
SEEN = 100
WITHIN, WITHIN_CALIBRATED = 0.15, 0.05
GB, NS = 1e9, 1e-9
MODELS = {
    "meta-llama/Llama-3.1-8B": ("llama-3.1-8b", "sharegpt300_llama-3.1-8b.jsonl.gz"),
    "Qwen/Qwen3-32B": ("qwen3-32b", "sharegpt300_qwen3-32b.jsonl.gz"),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": ("qwen3-30b-a3b", "sharegpt300_qwen3-32b.jsonl.gz"),
}
DEVICES = {"RTXPRO6000": "rtx-pro-6000-se", "RTX4090": "rtx-4090"}
METRICS = ("TTFT", "TPOT", "latency")

Column = NDArray[np.float64]
Times = dict[str, Column]


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run: what came in, what came out, and its own file's words on how it ran."""

    name: str
    told: Mapping[str, Any]
    requests: Sequence[Request]
    measured: Times

    @property
    def link(self) -> tuple[float, float]:
        """Bytes a second and latency (s) of the links, as the file describes them."""
        cluster = self.told["cluster_config"]
        return cluster["link_bw"] * GB, cluster["link_latency"] * NS

    @property
    def memory_bytes_per_s(self) -> float:
        """As the file describes it."""
        instance = self.told["cluster_config"]["nodes"][0]["instances"][0]
        return float(instance["npu_mem"]["mem_bw"]) * GB


def read_runs(data: Path) -> list[Run]:
    """All that were measured."""
    folder = data / "groundtruth"
    told = json.loads((folder / "vllm_request_runs.meta.json").read_text())
    rows: dict[str, list[dict[str, str]]] = {}
    with gzip.open(folder / "vllm_request_runs.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["run"], []).append(row)
    return [_run(name, told[name], some, data / "traces") for name, some in rows.items()]


def _run(
    name: str, told: Mapping[str, Any], rows: Sequence[Mapping[str, str]], traces: Path
) -> Run:
    trace = read_trace(traces / MODELS[told["model"]][1]).requests
    lengths = [(int(row["input_toks"]), int(row["output_toks"])) for row in rows]
    assert lengths == [(one.prompt_tokens, one.output_tokens) for one in trace], name
    column = {
        key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key[-2:] == "_s"
    }
    asked_s, first_s, last_s = column["arrival_s"], column["first_token_s"], column["last_token_s"]
    requests = [replace(one, at_s=at_s) for one, at_s in zip(trace, asked_s.tolist(), strict=True)]
    more = np.array([output - 1 for _, output in lengths])
    measured = {
        "TTFT": first_s - asked_s,
        "TPOT": (last_s - first_s) / more,
        "latency": last_s - asked_s,
    }
    return Run(name, told, requests, measured)


def cataloged(run: Run) -> Machine:
    """What the catalog has."""
    flags = run.told["engine_kwargs"]
    model, ranks = MODELS[flags["model"]][0], flags["data_parallel_size"]
    parallel = flags["tensor_parallel_size"] * ranks
    device = DEVICES[run.name.partition("/")[0]]
    on = machine(model, device, tensor_parallel=parallel, engine="vllm")
    on = in_lockstep(on) if ranks > 1 else on
    return replace(on, kv_tokens=run.told["kv_cache"]["num_kv_tokens"]) if _knows(run) else on


def _knows(run: Run) -> bool:
    return run.told["kv_cache"] is not None


def in_lockstep(sharded: Machine) -> Machine:
    """Two devices that share the experts only, each with sequences of its own.

    They wait for each other in every layer, so they are one engine of two devices: it reads what
    is not of experts twice, and a token's row passes a link once where tensor-parallel ranks pass
    it twice. Both are taken to have as many tokens.
    """
    steps = _steps(sharded)
    shape = steps.shape
    twice = shape.weights_bytes - shape.routed_bytes
    of_both = replace(
        shape,
        weights_bytes=shape.weights_bytes + twice,
        hidden_bytes_per_token=shape.hidden_bytes_per_token / 2,
    )
    kv_tokens = sharded.kv_tokens - int(twice / shape.kv_bytes_per_token)
    return Machine(replace(steps, shape=of_both), kv_tokens)


def described(run: Run) -> Machine:
    """The catalog's, with memory and links as the run's file has them.

    An all-reduce of a ring of p passes 2 (p - 1) links one after the other, a dispatch to experts
    or its way back p - 1: that many latencies stand for the fitted latency, which is NVLink's.
    """
    on = cataloged(run)
    steps = _steps(on)
    link_bytes_per_s, link_s = run.link
    shape = replace(
        steps.shape, memory_bytes_per_s=run.memory_bytes_per_s, link_bytes_per_s=link_bytes_per_s
    )
    one_way = run.told["engine_kwargs"]["data_parallel_size"] > 1
    passes = (1 if one_way else 2) * (shape.tensor_parallel - 1)
    known = replace(steps.coefficients, all_reduce_s=passes * link_s or 1e-6)
    return replace(on, steps=StepTime(shape, known))


def _steps(on: Machine) -> StepTime:
    assert isinstance(on.steps, StepTime), "of the catalog"
    return on.steps


def engine(run: Run, on: Machine) -> Model:
    """The run's engine with its limits; ranks in lockstep have them once each."""
    flags = run.told["engine_kwargs"]
    ranks = flags["data_parallel_size"]
    limits = Engine(
        on,
        max_seqs=ranks * flags["max_num_seqs"],
        max_batched_tokens=ranks * flags["max_num_batched_tokens"],
        ahead=True,
    )
    return Model("vllm", limits, slots=len(run.requests))


def clients(run: Run) -> OpenLoop:
    """Those of the run, anew."""
    return OpenLoop(run.requests, "vllm", block_tokens=16)


def simulated(run: Run, on: Machine) -> Times:
    """The times of the run's requests on a machine."""
    outcome = simulate(Serving((engine(run, on),)), clients(run))
    columns = _in_order(outcome)
    first, last = (columns[name] - columns["at_ns"] for name in ("first_ns", "done_ns"))
    return {
        "TTFT": first * NS,
        "TPOT": (last - first) * NS / (columns["said_tokens"] - 1),
        "latency": last * NS,
    }


def _in_order(outcome: Outcome) -> dict[str, Any]:
    assert outcome.answered.all(), "vLLM has answered all"
    order = np.argsort(outcome.columns["number"])
    return {name: column[order] for name, column in outcome.columns.items()}


def calibrated(run: Run, seen: int = SEEN) -> Machine:
    """`described`, fitted to the first requests of the run."""
    on = described(run)
    answering = run.measured["latency"] - run.measured["TTFT"]
    known = dict(enumerate(answering[:seen].tolist()))
    learned = learn(engine(run, on), partial(clients, run), known)
    return replace(on, steps=learned.steps)


def rows_of(case: str, ours: Times, theirs: Times, within: float) -> list[Row]:
    """Means, with a target on either side of 1, and the 99th percentiles."""
    found = []
    for metric in METRICS:
        mine, real = 1e3 * ours[metric], 1e3 * theirs[metric]
        row = compared(
            f"{case}: {metric} mean", "ms", [float(mine.mean())], [float(real.mean())],
            target=1 + within, better=Better.LESS,
        )  # fmt: skip
        found.append(replace(row, ok=error(row) <= within))
        last = [[percentile(one, 0.99)] for one in (mine, real)]
        found.append(compared(f"{case}: {metric} p99", "ms", *last, better=Better.LESS))
    return found


def error(row: Row) -> float:
    """How far ours is from what was measured, as a share of it."""
    assert row.ratio is not None, "beside something measured"
    return abs(row.ratio - 1)


def published(run: Run) -> dict[str, float]:
    """LLMServingSim's own errors of means on this run, by metric."""
    found = {}
    for line in run.told["llmservingsim_summary"].splitlines():
        words = line.split()
        if len(words) == 5 and words[1] == "Mean":
            metric = "latency" if words[0] == "Latency" else words[0]
            found[metric] = abs(float(words[3]) / float(words[2]) - 1)
    return found


def beside_published(run: Run, rows: Sequence[Row]) -> list[Row]:
    """Our errors beside theirs, of the same metrics; a peer's 0 would have no ratio."""
    theirs = published(run)
    means = [row for row in rows if row.case.endswith("mean")]
    return [
        compared(
            f"{row.case}, error", "share", [error(row)], [max(theirs[metric], 1e-4)],
            better=Better.LESS,
        )
        for metric, row in zip(METRICS, means, strict=True)
    ]  # fmt: skip


def part(times: Times, some: slice) -> Times:
    """Of some of the requests."""
    return {name: column[some] for name, column in times.items()}


def scored(run: Run) -> list[Row]:
    """All rows of a run."""
    ways: tuple[tuple[str, Callable[[Run], Machine]], ...] = (
        ("catalog", cataloged),
        ("described", described),
    )
    rows = []
    for word, make in ways:
        say(f"{run.name}: {word} ...")
        rows += rows_of(f"{run.name}, {word}", simulated(run, make(run)), run.measured, WITHIN)
    say(f"{run.name}: calibrated ...")
    rest = slice(SEEN, None)
    ours, theirs = part(simulated(run, calibrated(run)), rest), part(run.measured, rest)
    last = rows_of(f"{run.name}, calibrated", ours, theirs, WITHIN_CALIBRATED)
    return [*rows, *last, *beside_published(run, last)]


def main() -> int:
    """Command line; 2 where the runs are not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    if not (options.data / "groundtruth").is_dir():
        print(f"sim_vs_vllm: {options.data} is not here: --data FOLDER", file=sys.stderr)
        return 2
    runs = read_runs(options.data)
    rows = [row for run in (runs[:1] if options.quick else runs) for row in scored(run)]
    notes = [
        f"ok: the mean is within {WITHIN:.0%} of the measured one, above or below; calibrated "
        f"within {WITHIN_CALIBRATED:.0%}, on requests that the fit has not seen",
        "error rows: beside what LLMServingSim published for its own simulation of all 300",
    ]
    record = Record("sim_vs_vllm", rows, options.quick, notes, peer_versions={"vllm": "0.19.0"})
    return report(record, as_json=options.json, ours="simulated", peer="measured")


if __name__ == "__main__":
    sys.exit(main())
