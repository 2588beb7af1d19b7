"""How near the step-time model comes to published maximum throughputs of dense models, offline.

    python bench/offline.py [--quick] [--json]

Reads the rows of the published measurements (TensorRT-LLM, all requests queued at once) from the
data folder beside the checkout. No row was seen by a fit. A step decodes as many sequences as fit
beside the weights and prefills as many prompt tokens as keep them coming, within the tokens a step
may have; throughput is sequences over its time. Error: |predicted / measured - 1|, once with the
roofline and once with the coefficients fitted to TensorRT-LLM's latencies.
"""

import argparse
import csv
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.quantity import given, value_of
from ridgeline.serving.plan.decode import ROOFLINE, Decode
from rows import Better, Record, Row, add_options, report

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared/data/groundtruth/published.csv"
WHAT = "serving-offline-max-throughput"
MODELS = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama-3.3-70B-Instruct": "llama-3.1-70b",
    "Llama-3.1-405B-Instruct": "llama-3.1-405b",
}
DEVICES = {
    "H100 SXM 80GB": "h100-sxm",
    "H200 SXM 141GB": "h200-sxm",
    "B200 180GB": "b200-sxm",
}
ENGINES = (ROOFLINE, "trtllm")
# What the engine takes where its page names nothing else: its documented defaults.
MOST_SEQUENCES = 2048
MOST_TOKENS = 8192
# Of the memory that weights leave; the page says 0.90 to 0.95.
CACHE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Run:
    """One row: tokens a second of all devices together."""

    node: Decode
    input_tokens: float
    output_tokens: float
    requests: float
    tokens_per_s: float


def runs(engine: str) -> list[Run]:
    """The dense models of the catalog among the rows, with this engine's steps."""
    with DATA.open() as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == WHAT]
    return [run for row in rows if (run := _run(row, engine)) is not None]


def _run(row: dict[str, str], engine: str) -> Run | None:
    name, _, dtype = row["model"].rpartition("-")
    devices, _, device = row["hardware"].partition("x ")
    lengths = re.search(r"ISL/OSL (\d+)/(\d+); (\d+) requests", row["config"])
    if name not in MODELS or device not in DEVICES or lengths is None:
        return None
    node = Decode(
        model(MODELS[name]),
        accelerator(DEVICES[device]),
        given(float(devices), "GPUs"),
        {"FP8": "fp8", "FP4": "nvfp4"}[dtype],
        "fp8",
        engine=engine,
    )
    return Run(node, *(float(one) for one in lengths.groups()), float(row["value"]))


def predicted(run: Run) -> float:
    """Tokens a second while the queue is long."""
    context = run.input_tokens + run.output_tokens / 2
    left = value_of(run.node.left_bytes(1.0)) * CACHE_SHARE
    held = left // value_of(run.node.sequence_bytes(given(context, "tokens")))
    prompts = run.input_tokens / run.output_tokens
    batch = min(held, run.requests, MOST_SEQUENCES, MOST_TOKENS / (1 + prompts))
    if batch < 1:
        return float("nan")
    step_s = run.node.steps.step_s(
        given(batch, "tokens"),
        given(batch * context, "tokens"),
        given(batch * prompts, "tokens"),
        given(run.input_tokens / 2, "tokens"),
    )
    return batch / float(value_of(step_s))


def rows_of(quick: bool) -> list[Row]:
    """Errors of both, and how many of the rows got an answer."""
    rows: list[Row] = []
    for engine in ENGINES:
        some = runs(engine)[:: 4 if quick else 1]
        ratios = np.array([predicted(run) / run.tokens_per_s for run in some])
        answered = ratios[np.isfinite(ratios)]
        errors = np.abs(answered - 1)
        for name, value in (("median", np.median(errors)), ("p90", np.quantile(errors, 0.9))):
            rows.append(Row(f"{engine}, {name}", "share", float(value), better=Better.LESS))
        # 1 would be no bias: above it the prediction is too high
        rows.append(Row(f"{engine}, measured / predicted", "share", float(np.median(1 / answered))))
        rows.append(Row(f"{engine}, answered", "share", len(answered) / len(some)))
    rows.append(Row("rows", "runs", len(some)))
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA.name} is not there; it lies beside the checkout, never in it")
    record = Record("offline", rows_of(options.quick), options.quick)
    sys.exit(report(record, as_json=options.json))


if __name__ == "__main__":
    main()
