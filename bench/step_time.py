"""How near the step-time model comes to published measurements, and the defaults fitted to them.

    python bench/step_time.py [--write] [--quick] [--json]

Reads the silicon points (closed loop, aggregated, mean time per output token) from the data folder
beside the checkout. Fits over all engines and for each, for dense models and for mixtures of
experts, become `catalog/step_times.yaml` with `--write`. Then each (engine, accelerator) group is
predicted by a fit that never saw it, and after 8 of its points. Error: |predicted / measured - 1|.
"""

import argparse
import csv
import gzip
import sys
from pathlib import Path

import numpy as np

from ridgeline.catalog.models import model
from ridgeline.catalog.step_times import ANY, FAMILIES, KEY
from ridgeline.serving.plan.calibrate import Calibration, Run, fit_runs, prediction
from ridgeline.serving.plan.steps import family_of
from rows import Better, Record, Row, add_options, report

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared/data/groundtruth/serving_silicon.csv.gz"
CATALOG = ROOT / "src/ridgeline/catalog/step_times.yaml"
# Where the search starts, and how far logs may stray: shares of a peak are known within limits,
# latencies only by their order of magnitude. In the order of NAMES.
START = np.array([0.85, 1.0, 0.6, 30e-6, 4e-6, 20e-6, 0.5e-3])
STRAY_SD = np.array([0.15, 0.4, 0.2, 1.5, 1.5, 1.5, 1.5])
NOISE_SD = 0.15
FEW = 8
SYSTEMS = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
MODELS = {
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "zhipuai/GLM-5": "glm-5",
}
DTYPES = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int4_wo": "int4", "": "bf16"}
# Nominal lengths are the upper end of a uniform draw down to 0.8 of them.
LENGTHS = {"inferencex": 0.9, "nvidia-internal": 1.0}


def runs() -> list[Run]:
    """The aggregated points of models that the catalog has."""
    with gzip.open(DATA, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "agg"]
    found = []
    for row in rows:
        if row["attention_dp_size"] not in ("1", "") or row["pp_size"] != "1":
            continue
        if row["model_path"] not in MODELS or not row["concurrency"]:
            continue
        scale = LENGTHS[row["origin"]]
        words = {
            "model": MODELS[row["model_path"]],
            "accelerator": SYSTEMS[row["system"]],
            "engine": row["backend"],
            "version": row["backend_version"] or ANY,
            "dtype": DTYPES[row["gemm_quant_mode"]],
        }
        found.append(
            Run(
                tuple(words[name] for name in KEY),
                cache_dtype(words["engine"], words["dtype"]),
                int(row["tp_size"]),
                float(row["concurrency"]),
                scale * float(row["isl"]),
                scale * float(row["osl"]),
                float(row["silicon_tpot_ms"]) / 1e3,
            )
        )
    return found


def cache_dtype(engine: str, dtype: str) -> str:
    """Of the cache, which the rows do not tell.

    TensorRT-LLM keeps it in fp8 for quantised checkpoints; read as 16 bits, its dense runs would
    need 1.9 times the memory's bandwidth.
    """
    return "fp8" if engine == "trtllm" and dtype != "bf16" else "bf16"


def word(run: Run, name: str) -> str:
    """One word of a run's key."""
    return run.key[KEY.index(name)]


def general(runs: list[Run], **named: str) -> Calibration:
    """One fit for many keys."""
    key = tuple(named.get(name, ANY) for name in KEY)
    return fit_runs(key, runs, START, prior_sd=STRAY_SD, noise_sd=NOISE_SD)


def held_out(runs: list[Run]) -> tuple[list[float], list[float]]:
    """Errors on groups that a fit never saw, and after `FEW` of their points."""
    groups = sorted({(word(run, "engine"), word(run, "accelerator")) for run in runs})
    zero, few = [], []
    for engine, device in groups:
        inside = [
            r for r in runs if word(r, "engine") == engine and word(r, "accelerator") == device
        ]
        if len(inside) < 2 * FEW:
            continue
        outside = [run for run in runs if run not in inside]
        prior = general(outside).fitted.values
        zero += errors(inside, prior)
        order = np.random.default_rng(0).permutation(len(inside))
        seen = [inside[index] for index in order[:FEW]]
        rest = [inside[index] for index in order[FEW:]]
        few += errors(rest, fit_runs(inside[0].key, seen, prior).fitted.values)
    return zero, few


def errors(runs: list[Run], values: np.ndarray) -> list[float]:
    """|predicted / measured - 1| of each run."""
    measured = np.array([run.tpot_s for run in runs])
    return list(np.abs(prediction(runs)(values) / measured - 1))


def rows_of(runs: list[Run]) -> list[Row]:
    """Dense and mixture-of-experts models apart."""
    rows = []
    for kind in FAMILIES:
        some = [run for run in runs if family_of(model(word(run, "model"))) == kind]
        zero, few = held_out(some)
        for case, found in (("unseen group", zero), (f"after {FEW} points", few)):
            for name, value in (("median", np.median(found)), ("p90", np.quantile(found, 0.9))):
                rows.append(
                    Row(f"{kind}, {case}, {name}", "share", float(value), better=Better.LESS)
                )
        rows.append(Row(f"{kind}, points", "runs", len(some)))
    return rows


def write(runs: list[Run]) -> None:
    """The defaults: dense and mixture-of-experts models, over all engines and for each."""
    import yaml

    rows = []
    for family in FAMILIES:
        some = [run for run in runs if family_of(model(word(run, "model"))) == family]
        for engine in (ANY, *sorted({word(run, "engine") for run in some})):
            inside = [run for run in some if engine in (ANY, word(run, "engine"))]
            done = general(inside, model=family, engine=engine)
            told = f"`bench/step_time.py --write` on {len(inside)} points of {DATA.name}"
            rows.append(done.row(f"{told} (see the README beside it)"))
    CATALOG.write_text(yaml.safe_dump({"schema": 1, "step_times": rows}, sort_keys=False))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--write", action="store_true", help="write the catalog's defaults")
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA.name} is not there; it lies beside the checkout, never in it")
    found = runs()
    if options.quick:
        found = found[::4]
    if options.write:
        write(found)
    record = Record("step_time", rows_of(found), options.quick)
    sys.exit(report(record, as_json=options.json))


if __name__ == "__main__":
    main()
