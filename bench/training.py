"""How near `ridgeline plan training-layout` comes to published training runs.

    python bench/training.py [--quick] [--json] [--each]

Reads the training rows of the data folder beside the checkout. Every row that says how its run was
laid out is asked with just that: degrees, micro-batch, schedule, recomputation, type. What it does
not say is searched. Error: |predicted / published - 1| of tokens a second a GPU. None of the rows
was fitted to: the three that constants come from (Llama 3, table 4) are left out.
"""

import argparse
import csv
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.catalog.models import Model, as_model, model
from ridgeline.errors import RidgelineError
from ridgeline.physics.power import clock_share
from ridgeline.platform.plan import topics
from ridgeline.topics import ask
from rows import Better, Record, Row, add_options, report

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared/data/groundtruth/published.csv"
TOPIC = "training-layout"
MODELS = {
    "Llama-3-8B": "llama-3-8b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3-70B": "llama-3-70b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "Llama-3.1-405B": "llama-3.1-405b",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-V3-671B": "deepseek-v3",
    "Kimi-K2": "kimi-k2",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "GPT-OSS-20B": "gpt-oss-20b",
    "GPT-OSS-120B": "gpt-oss-120b",
}
DEVICES = {
    "H100": "h100-sxm",
    "DGX-H100": "h100-sxm",
    "H100-96GB-500W": "h100-sxm",
    "A100": "a100-80gb-sxm",
    "A100-80GB": "a100-80gb-sxm",
    "DGX-B200": "b200-sxm",
    "DGX-GB200": "gb200",
    "DGX-GB300": "gb300",
}
#: Models of before the catalog: layers, width, heads. With the vocabulary they give the parameters
#: that the rows state, to 0.1 %.
MPT_VOCAB, GPT_VOCAB = 50_368, 51_200
SHAPES = {
    "MPT-1b": (24, 2048, 16),
    "MPT-3b": (32, 2560, 32),
    "MPT-7b": (32, 4096, 32),
    "MPT-13b": (40, 5120, 40),
    "MPT-30b": (48, 7168, 56),
    "MPT-70b": (80, 8192, 64),
    "GPT-22B": (48, 6144, 64),
    "GPT-175B": (96, 12_288, 96),
    "GPT-530B": (105, 20_480, 128),
    "GPT-1000B": (128, 25_600, 160),
}
#: How a source writes what the backward pass computes again.
RECOMPUTED = (
    ("full-ckpt", "full"), ("full AC", "full"), ("full recompute", "full"),
    ("no-ckpt", "none"), ("SHARD_GRAD_OP", "none"), ("SAC", "elementwise"),
    ("selective AC", "elementwise"), ("selective recompute", "none"),
)  # fmt: skip
SOURCES = {"mosaicml": "MosaicML", "arXiv:21": "Megatron", "arXiv:22": "Megatron",
           "torchtitan": "torchtitan", "NVIDIA-NeMo": "NVIDIA"}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One published run: who published it, what is asked, and its tokens a second a GPU."""

    source: str
    name: str
    asked: dict[str, Any]
    published: float
    overrides: dict[str, str] = field(default_factory=dict)


def number(pattern: str, text: str, other: int = 0) -> int:
    """The first group of a pattern as a whole number, or the other where there is none."""
    found = re.search(pattern, text)
    return int(found[1]) if found else other


def old_model(name: str, config: str) -> Model:
    """A GPT or MPT: multi-head attention, GELU of four times the width, tied tables."""
    layers, hidden, heads = SHAPES.get(name) or (
        number(r"layers (\d+)", config), number(r"hidden (\d+)", config),
        number(r"heads (\d+)", config),
    )  # fmt: skip
    vocab = MPT_VOCAB if name.startswith("MPT") else GPT_VOCAB
    params = 12 * layers * hidden**2 + vocab * hidden
    row: dict[str, Any] = {
        "id": name.lower(), "name": name, "params_total": params, "params_active": params,
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_dim": hidden // heads, "vocab": vocab, "context": 2048, "tied_embeddings": True,
        # Two vectors of 4 h are kept of a GELU block; a gated block keeps three of its width.
        "intermediate": 8 * hidden / 3, "attention": {"kind": "mha"}, "source": "its paper",
    }  # fmt: skip
    return as_model(row)


def tokens_per_gpu(row: dict[str, str], gpus: int, sequence: int, batch: int, of: Model) -> float:
    """Tokens a second a GPU, out of whatever a source published."""
    value, metric = float(row["value"]), row["metric"]
    if metric == "step_time":
        return batch * sequence / value / gpus
    if metric == "achieved_tflops_per_gpu":
        # Narayanan et al. 2021, equation 3: full recomputation and whole attention are counted.
        layers, hidden = of.data["layers"], of.data["hidden"]
        wide = 1 + sequence / (6 * hidden) + of.data["vocab"] / (16 * layers * hidden)
        return value * 1e12 / (96 * layers * hidden**2 * wide)
    return value


def run_of(row: dict[str, str]) -> Run | None:
    """The question that a row answers; None where it does not say what is needed."""
    config, name, (gpus_text, device) = row["config"], row["model"], row["hardware"].split()[:2]
    source = next((told for key, told in SOURCES.items() if key in row["source"]), "")
    is_old = name.startswith(("MPT", "GPT-")) and "OSS" not in name
    measured = ("tokens_per_gpu",) if not is_old else (
        "tokens_per_gpu", "achieved_tflops_per_gpu", "step_time")  # fmt: skip
    if row["metric"] not in measured or not source or device not in DEVICES:
        return None
    of = old_model(name, config) if is_old else model(MODELS[name])
    gpus, asked = int(gpus_text.rstrip("x")), {"model": of, "accelerator": DEVICES[device]}
    sequence = number(r".*seq ?(\d+)", config, 2048 if is_old else 8192)
    asked |= {"gpus": gpus, "sequence_tokens": str(sequence)}
    degrees = {
        "tensor_parallel": number(r"TP(\d+)", config, 1),
        "pipeline_parallel": number(r"PP(\d+)", config, 1),
        "context_parallel": number(r"CP(\d+)", config, 1),
    }
    data = gpus // int(np.prod(list(degrees.values())))
    # Without a word on experts a mixture's split is searched.
    asked |= degrees | {"expert_parallel": number(r"EP(\d+)", config, 0 if of.is_moe else 1)}
    local = number(r"LBS(\d+)", config) or number(r"mb(\d+)", config, 1)
    batch = number(r"(?:GBS|batch) ?(\d+)", config) or local * data * number(r"ga(\d+)", config, 1)
    asked |= {"global_batch": batch} | schedule(config, degrees["pipeline_parallel"], source)
    asked["dtype"] = "fp8" if re.search("fp8|float8", config, re.IGNORECASE) else "bf16"
    published = tokens_per_gpu(row, gpus, sequence, batch, of)
    return Run(source, f"{name} on {row['hardware']}: {config}", asked, published, limits(device))


def schedule(config: str, pipeline: int, source: str) -> dict[str, Any]:
    """Micro-batch, interleaving, sharding and recomputation, as far as they are told."""
    told: dict[str, Any] = {}
    if micro := number(r"MBS ?(\d+)", config) or number(r"\bmb(\d+)", config):
        told["micro_batch"] = micro
    elif source == "torchtitan":
        told["micro_batch"] = 1 if pipeline > 1 else number(r"LBS(\d+)", config, 1)
    if chunks := number(r"VP(\d+)", config):
        told["virtual_stages"] = chunks
    elif re.search(r"(?<!interleaved-)1F1B", config):
        told["virtual_stages"] = 1
    if "SHARD_GRAD_OP" in config or (source == "torchtitan" and pipeline > 1):
        told["zero"] = "2"
    elif re.search(r"FSDP(\d{1,}| no-ckpt| full-ckpt| 1)", config) and pipeline == 1:
        told["zero"] = "3"
    level = next((level for words, level in RECOMPUTED if words in config), "search")
    return told | {"recompute": level}


def limits(device: str) -> dict[str, str]:
    """What a device of a name differs in from the catalog's."""
    if device != "H100-96GB-500W":
        return {}
    # HBM2e, and 500 of 700 W: the clock that our own law leaves.
    clock = clock_share(500 / 700)
    return {
        "memory_bytes": "96 GB", "memory_bytes_per_s": "2.4 TB/s",
        "bf16_flop_per_s": f"{989.4 * clock} TFLOP/s",
        "fp8_flop_per_s": f"{1978.9 * clock} TFLOP/s",
    }  # fmt: skip


def runs() -> list[Run]:
    """Every row that can be asked, each run once."""
    with DATA.open() as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "training"]
    found: dict[tuple[str, float], Run] = {}
    for row in rows:
        if (run := run_of(row)) is not None:
            found.setdefault((run.name, round(run.published, 3)), run)
    return list(found.values())


def predicted(run: Run) -> tuple[float, bool] | None:
    """Tokens a second a GPU, and whether the layout is said to fit; None where it is refused."""
    overrides = {key: text for key, text in run.overrides.items() if _matters(key, run)}
    try:
        answer = ask(TOPIC, run.asked, overrides).answer
    except RidgelineError as error:
        print(f"{run.name}: {error}", file=sys.stderr)
        return None
    return float(answer.values["tokens_per_s"].value) / run.asked["gpus"], answer.ok


def _matters(key: str, run: Run) -> bool:
    return key != "fp8_flop_per_s" or run.asked["dtype"] == "fp8"


def rows_of(found: list[Run], each: bool) -> list[Row]:
    """Errors of dense models and of mixtures, over all and for each source."""
    scored: dict[str, list[float]] = {}
    asked: dict[str, int] = {}
    fits = 0
    for run in found:
        kind = "mixture" if run.asked["model"].is_moe else "dense"
        groups = (kind, f"{kind}, {run.source}")
        for group in groups:
            asked[group] = asked.get(group, 0) + 1
        answer = predicted(run)
        if answer is None:
            continue
        error = answer[0] / run.published - 1
        fits += answer[1]
        if each:
            print(f"{error:+.2f}  {'fits' if answer[1] else 'NOT '}  {run.name}", file=sys.stderr)
        for group in groups:
            scored.setdefault(group, []).append(abs(error))
    rows = []
    for group in sorted(scored):
        errors = scored[group]
        for name, value in (("median", np.median(errors)), ("p90", np.quantile(errors, 0.9))):
            rows.append(Row(f"{group}, {name}", "share", float(value), better=Better.LESS))
        rows.append(Row(f"{group}, answered", "share", len(errors) / asked[group]))
        rows.append(Row(f"{group}, runs", "runs", asked[group]))
    total = sum(len(errors) for group, errors in scored.items() if "," not in group)
    rows.append(Row("layouts that ran and are said to fit", "share", fits / total))
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--each", action="store_true", help="print each run on standard error")
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA.name} is not there; it lies beside the checkout, never in it")
    topics()
    found = runs()
    if options.quick:
        found = found[::4]
    record = Record("training", rows_of(found, options.each), options.quick)
    sys.exit(report(record, as_json=options.json))


if __name__ == "__main__":
    main()
