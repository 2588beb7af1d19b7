"""Calibration: runs in, a catalog's row out, and plans that use it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from ridgeline.catalog.own_file import add_row
from ridgeline.catalog.step_times import step_coefficients
from ridgeline.errors import SpecError
from ridgeline.physics.step_time import NAMES
from ridgeline.platform.plan import topics
from ridgeline.serving.plan.calibrate import Run, fit_all, prediction, prior_of, read_runs
from ridgeline.topics import ask

topics()
KEY = ("bf16", "1.0", "llama-3.1-8b", "h100-sxm", "vllm")
HEAD = "model,accelerator,engine,tensor_parallel,concurrency,input_tokens,output_tokens,tpot_ms"
ROW = "llama-3.1-8b,h100-sxm,vllm,1,16,1000,200,9.5"


def runs(values: np.ndarray | None = None, count: int = 12) -> list[Run]:
    """A sweep of concurrency and lengths, timed by the model itself with these coefficients."""
    shapes = [
        (c, s) for s in (128.0, 1024.0, 8192.0) for c in (1.0, 4.0, 16.0, 64.0, 128.0, 256.0)
    ][:count]
    bare = [Run(KEY, "bf16", 1, c, s, 256.0, 1.0) for c, s in shapes]
    if values is None:
        return bare
    times = prediction(bare)(values)
    return [
        Run(KEY, "bf16", 1, run.concurrency, run.input_tokens, 256.0, float(s))
        for run, s in zip(bare, times, strict=True)
    ]


def test_the_prior_is_the_default_for_dense_models_of_that_engine():
    fitted = step_coefficients("dense", engine="vllm").coefficients
    assert list(prior_of(KEY)) == [getattr(fitted, name).value for name in NAMES]


def test_a_machine_that_is_slower_by_a_third_is_found_to_be():
    slower = prior_of(KEY) * np.array([0.75, 0.75, 0.75, 1.33, 1.33, 1.33, 1.33])
    (done,) = fit_all(runs(slower, 18))
    assert np.median(done.before) > 0.2
    assert np.median(done.after) < 0.02


def test_eight_noisy_points_bring_the_error_of_the_others_down():
    chance = np.random.default_rng(3)
    truth = prior_of(KEY) * np.exp(chance.normal(0, 0.35, len(NAMES)))
    every = runs(truth, 18)
    order = chance.permutation(len(every))
    noisy = [
        Run(*_fields(every[i])[:-1], every[i].tpot_s * float(np.exp(chance.normal(0, 0.05))))
        for i in order[:8]
    ]
    rest = [every[i] for i in order[8:]]
    (done,) = fit_all(noisy)
    measured = np.array([run.tpot_s for run in rest])

    def error(values: np.ndarray) -> float:
        return float(np.median(np.abs(prediction(rest)(values) / measured - 1)))

    assert error(done.fitted.values) < 0.6 * error(prior_of(KEY))


def test_a_fit_that_stays_far_off_is_not_believable():
    truthful = runs(prior_of(KEY) * 1.2)
    absurd = [
        Run(*_fields(run)[:-1], run.tpot_s * (30 if n % 2 else 1 / 30))
        for n, run in enumerate(truthful)
    ]
    assert fit_all(truthful)[0].is_believable
    assert not fit_all(absurd)[0].is_believable


def _fields(run: Run) -> list:
    return [getattr(run, name) for name in run.__slots__]


def test_a_fit_becomes_a_row_that_plans_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (done,) = fit_all(runs(prior_of(KEY) * np.array([0.5, 1, 1, 1, 1, 1, 1])))
    asked = {"model": "llama-3.1-8b", "tensor_parallel": "1", "dtype": "bf16", "engine": "vllm"}
    before = ask("step-time", asked).answer.values["decode_step_s"].value
    file = tmp_path / "mine.yaml"
    row = done.row("a test") | {"version": "*"}
    add_row(file, "step_times", row)
    monkeypatch.setenv("RIDGELINE_CATALOG", str(file))
    after = ask("step-time", asked).answer
    assert after.values["decode_step_s"].value > 1.3 * before
    assert row["id"] in after.notes[0]


def test_runs_are_read_with_their_units(tmp_path: Path):
    file = tmp_path / "runs.csv"
    file.write_text(f"{HEAD}\n{ROW}\n")
    (run,) = read_runs(file)
    assert run.tpot_s == pytest.approx(0.0095)
    assert run.key == ("bf16", "*", "llama-3.1-8b", "h100-sxm", "vllm")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no runs"),
        (f"{HEAD}\n", "no runs"),
        (f"{HEAD[:-8]}\n{ROW}\n", "no column tpot_ms"),
        (f"{HEAD}\n{ROW.replace('9.5', 'fast')}\n", "tpot_ms is 'fast'"),
        (f"{HEAD}\n{ROW.replace('9.5', '-1')}\n", "tpot_ms is '-1'"),
        (f"{HEAD}\n{ROW.replace('16', 'nan')}\n", "concurrency is 'nan'"),
        (f"{HEAD}\n{ROW.replace('vllm', '')}\n", "engine is empty"),
        (f"{HEAD}\n{ROW.replace('8b', '9b')}\n", "not in the catalog"),
        (f"{HEAD}\n{ROW.replace('9.5', '1e308')}\n", "no engine takes"),
        (f"{HEAD}\n{ROW.replace('9.5', '1e-300')}\n", "no engine takes"),
        (f"{HEAD}\n{ROW.replace('9.5', '0.0009')}\n", "no engine takes"),
        (f"{HEAD}\n{ROW.replace('9.5', '1000001')}\n", "no engine takes"),
        (f"{HEAD[:-2]}s\n{ROW.replace('9.5', '1001')}\n", "no engine takes"),
        (f"{HEAD}\n{ROW.replace('vllm,1', 'vllm,3')}\n", "does not divide the 32 heads"),
        (f"{HEAD}\n{ROW.replace('vllm,1', 'vllm,1.5')}\n", "does not divide the 32 heads"),
        (f"{HEAD}\n{ROW.replace('1000', '1e12')}\n", "input_tokens is 1e+12"),
        (f"{HEAD}\n{ROW},7\n", "too many cells"),
        (f"{HEAD},tpot_s\n{ROW},0.0095\n", "has both tpot_ms and tpot_s"),
        (f"{HEAD},engine\n{ROW},sglang\n", "column engine twice"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_field(tmp_path: Path, text: str, told: str):
    file = tmp_path / "runs.csv"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_runs(file)
    assert told in caught.value.problem
    assert caught.value.remedy
    if text.count("\n") > 1 and not told.startswith(("has both", "column", "no column")):
        assert "line 2" in caught.value.where


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_runs(tmp_path / "none.csv")


def test_the_file_written_is_a_csv_a_person_can_make(tmp_path: Path):
    file = tmp_path / "runs.csv"
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*HEAD.split(","), "version", "dtype", "kv_dtype"])
        writer.writerow([*ROW.split(","), "0.19", "fp8", "fp8"])
    assert read_runs(file)[0].key[:2] == ("fp8", "0.19")
