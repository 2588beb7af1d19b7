"""`ridgeline calibrate`: what a person sees, and what is left behind."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ridgeline.cli.calibrate import calibrate
from ridgeline.errors import CatalogError, SpecError

HEAD = "model,accelerator,engine,version,dtype,tensor_parallel,concurrency"
RUNS = f"""{HEAD},input_tokens,output_tokens,tpot_ms
llama-3.1-8b,h100-sxm,vllm,0.19,bf16,1,1,1000,200,7.1
llama-3.1-8b,h100-sxm,vllm,0.19,bf16,1,16,1000,200,10.4
llama-3.1-8b,h100-sxm,vllm,0.19,bf16,1,64,1000,200,21.9
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    file = tmp_path / "runs.csv"
    file.write_text(RUNS)
    return file


def test_it_shows_coefficients_with_intervals_and_the_error_before_and_after(runs: Path):
    said = CliRunner().invoke(calibrate, [str(runs)])
    assert said.exit_code == 0
    assert "3 runs, median error" in said.output
    assert "bandwidth_share" in said.output
    assert "..." in said.output


def test_it_writes_rows_only_where_asked(runs: Path, tmp_path: Path):
    file = tmp_path / "mine.yaml"
    said = CliRunner().invoke(calibrate, [str(runs), "--file", str(file), "--json"])
    (row,) = json.loads(said.output)
    assert row["id"] == "llama-3.1-8b/h100-sxm/vllm/0.19/bf16"
    assert row["points"] == 3
    assert row["id"] in file.read_text()


def test_a_fit_that_nobody_can_believe_is_warned_of(runs: Path):
    runs.write_text(RUNS.replace("21.9", "900000").replace("10.4", "0.002"))
    said = CliRunner().invoke(calibrate, [str(runs)])
    assert said.exit_code == 0
    assert "not believable" in said.output
    assert "not believable" in CliRunner().invoke(calibrate, [str(runs), "--json"]).stderr


def test_a_fit_of_sane_runs_is_believed(runs: Path):
    assert "believable" not in CliRunner().invoke(calibrate, [str(runs)]).output


def test_bad_runs_leave_the_file_alone(runs: Path, tmp_path: Path):
    file = tmp_path / "mine.yaml"
    runs.write_text(RUNS.replace("21.9", "0"))
    said = CliRunner().invoke(calibrate, [str(runs), "--file", str(file)])
    assert isinstance(said.exception, SpecError)
    assert not file.exists()


def test_a_missing_folder_is_refused_with_the_command_that_makes_it(runs: Path, tmp_path: Path):
    file = tmp_path / "none" / "mine.yaml"
    said = CliRunner().invoke(calibrate, [str(runs), "--file", str(file)])
    assert isinstance(said.exception, CatalogError)
    assert said.exception.remedy == f"mkdir -p {file.parent}"
    assert not file.parent.exists()
