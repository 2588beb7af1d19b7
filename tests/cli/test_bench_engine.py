import json

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.cli.bench_engine import lines

pytest.importorskip("torch", reason="the engine needs it")

from tiny_models import write_tiny

from ridgeline.serving.engine.step_profile import Profile, Stage, Work

PROFILE = Profile(
    kernels="C++, amx",
    dtype="bf16",
    threads=2,
    wall_s=0.020,
    work=Work(steps=2, rows=32, wanted=32, pairs=0, cached=32 * 256),
    stages=[
        Stage("schedule", 0.001),
        Stage("qkv", 0.004, 4e6, 8e6),
        Stage("gate_up", 0.012, 12e6, 48e6),
        Stage("emit", 0.002),
    ],
)


def test_the_answer_comes_first_and_names_what_takes_most() -> None:
    first = lines("smollm2", PROFILE, None, profile=True)[0]
    assert first == (
        "10.00 ms a step of 16 sequences at context 256, 1,600 tokens/s; gate_up + silu takes 60%"
    )


def test_stages_have_ms_a_step_shares_and_rates_where_known_and_the_wall_is_the_last() -> None:
    shown = [" ".join(line.split()) for line in lines("smollm2", PROFILE, None, profile=True)]
    assert "schedule 0.500 5.0 %" in shown
    assert "qkv 2.000 20.0 % 1.0 2.0" in shown
    assert shown[-2:] == ["total 9.500 95.0 %", "wall 10.000 100.0 %"]
    assert all(len(line) <= 80 for line in lines("smollm2", PROFILE, None, profile=True)[3:])


def test_without_profile_two_lines_and_the_next_command() -> None:
    told = lines("smollm2", PROFILE, None, profile=False)
    assert len(told) == 3
    assert "--profile" in told[-1]


def test_prompts_are_told_by_the_prompt() -> None:
    told = lines("smollm2", PROFILE, 1, profile=True)
    assert told[0].startswith("0.6 ms for a prompt of 1 tokens, 1,600 prompt tokens/s")


def test_prompts_and_decodes_exclude_each_other() -> None:
    asked = ["bench", "engine", "--prompt", "8", "--batch", "2"]
    result = CliRunner().invoke(ridgeline_command, asked)
    assert "--prompt" in str(result.exception)


@pytest.fixture
def model(tmp_path):
    write_tiny(tmp_path / "llama", "llama")
    return str(tmp_path / "llama")


def test_more_tokens_than_the_context_are_refused_with_the_options_name(model) -> None:
    asked = ["bench", "engine", model, "--context", "5000"]
    result = CliRunner().invoke(ridgeline_command, asked)
    assert "--context" in str(result.exception)


@pytest.mark.parametrize("size", [["--batch", "2", "--context", "20"], ["--prompt", "20"]])
def test_json_holds_every_stage(model, size, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path / "cache"))
    asked = ["bench", "engine", model, "--profile", "--json", "--steps", "2", "--dtype", "fp32"]
    result = CliRunner().invoke(ridgeline_command, [*asked, *size], catch_exceptions=False)
    said = json.loads(result.output)
    assert said["work"]["steps"] == 2
    assert {"schedule", "sampling", "emit"} <= {stage["name"] for stage in said["stages"]}
    assert said["total_s"] <= said["wall_s"]
