"""`ridgeline calibrate --from-live`: what a person types and sees, and what is left behind."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ridgeline.cli.calibrate import calibrate
from ridgeline.cli.calibrate_live import ways
from ridgeline.cli.simulate import simulate
from ridgeline.errors import SpecError
from ridgeline.physics.step_table import StepTable
from ridgeline.serving.bench import step_profile
from ridgeline.serving.bench.step_profile import Profile
from ridgeline.serving.plan.step_file import read
from ridgeline.serving.plan.step_fit import Counts, Estimate, Observed, prompt_steps

URL = "http://127.0.0.1:8001"
TRUE = StepTable((1, 8, 64, 512), (0.007, 0.010, 0.025, 0.16), 1e-4, 1e-6, 1e-8)
SPEC = """
name: small
models:
  - {name: m, model: smollm2-135m-instruct}
"""


def observed(spread: float) -> list[Observed]:
    found = []
    for number in range(4):
        off = 1 + spread * (-1) ** number
        for count in (1, 2, 4, 8, 16):
            took_s = TRUE.step_s(count, 30.0 * count)
            found.append(Observed((Counts(count, 30.0 * count),), off * took_s))
        for tokens in (16, 64, 256, 512):
            took_s = TRUE.step_s(None, None, tokens, tokens / 2) + 0.003
            found.append(Observed(prompt_steps(tokens, 512), took_s / off, travels=True))
    return found


@pytest.fixture
def live(monkeypatch):
    """An engine whose profile is made up; `asked` is what it was asked with."""
    asked: list[tuple] = []

    def answer(kv_tokens: int = 43_392, spread: float = 0.0) -> list[tuple]:
        async def profile(urls, extent, seconds, *, seed, through, model, api_key):
            asked.append((tuple(urls), extent, seconds, model, through))
            return Profile("m", tuple(observed(spread)), 2e-4, 0.0, kv_tokens, 16, 9.0)

        monkeypatch.setattr(step_profile, "profile", profile)
        return asked

    return answer


def said(*arguments: str):
    return CliRunner().invoke(calibrate, [*arguments])


def test_it_shows_what_was_found_and_keeps_it_where_asked(live, tmp_path: Path):
    live()
    file = tmp_path / "steps.yaml"
    answer = said("--from-live", URL, "--file", str(file))
    assert answer.exit_code == 0, answer.output
    assert "a step of 64" in answer.output
    assert "median error 0.0 %" in answer.output
    assert f"simulate serving SPEC --step-times {file}" in answer.output
    found = read(file)
    assert found.kv_tokens == 43_392
    assert found.table.step_s(4, 100.0) == pytest.approx(TRUE.step_s(4, 100.0), rel=0.03)
    assert found.source["urls"] == [URL]


def test_the_file_is_what_simulate_takes(live, tmp_path: Path):
    live()
    file, spec = tmp_path / "steps.yaml", tmp_path / "platform.yaml"
    said("--from-live", URL, "--file", str(file))
    spec.write_text(SPEC)
    common = ["serving", str(spec), "--rate", "2", "--requests", "50", "--prompt", "64", "--json"]
    with pytest.raises(SpecError, match="says no hardware"):
        CliRunner().invoke(simulate, common, catch_exceptions=False)
    answer = CliRunner().invoke(simulate, [*common, "--step-times", str(file), "--output", "16"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["requests"] == 50


def test_without_a_file_it_says_how_to_keep_it(live):
    live()
    assert "--file step-times.yaml keeps them" in said("--from-live", URL).output


def test_options_reach_the_profile(live):
    asked = live()
    options = [
        "--through",
        "http://gateway",
        "--seconds",
        "9",
        "--sequences",
        "8",
        "--context",
        "300",
        "--step-tokens",
        "128",
    ]
    assert (
        said("--from-live", URL, "--from-live", "http://b", *options, "--model", "m").exit_code == 0
    )
    ((urls, extent, seconds, model, through),) = asked
    assert urls == (URL, "http://b")
    assert (extent.sequences, extent.context_tokens, extent.step_tokens) == (8, 300, 128)
    assert (seconds, model, through) == (9.0, "m", "http://gateway")


def test_a_profile_that_others_disturbed_is_warned_of(live):
    live(spread=0.3)
    answer = said("--from-live", URL)
    assert answer.exit_code == 0
    assert "off the fit" in answer.stderr


def test_an_engine_that_does_not_tell_its_cache_has_to_be_told_of(live, tmp_path: Path):
    live(kv_tokens=0)
    file = tmp_path / "steps.yaml"
    with pytest.raises(SpecError, match="does not tell how many tokens"):
        CliRunner().invoke(
            calibrate, ["--from-live", URL, "--file", str(file)], catch_exceptions=False
        )
    assert not file.exists()
    assert said("--from-live", URL, "--kv-tokens", "5000", "--file", str(file)).exit_code == 0
    assert read(file).kv_tokens == 5000


def test_json_is_the_file_with_its_intervals(live):
    live()
    told = json.loads(said("--from-live", URL, "--json").stdout)
    assert told["curve"]["1"]["low"] <= told["curve"]["1"]["value"] <= told["curve"]["1"]["high"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "neither RUNS nor --from-live"),
        (["runs.csv", "--from-live", URL], "RUNS and --from-live"),
        (["runs.csv", "--seconds", "5"], "--seconds: is of --from-live"),
        (["runs.csv", "--kv-tokens", "5"], "--kv-tokens: is of --from-live"),
    ],
)
def test_it_is_one_way_or_the_other(arguments, says):
    with pytest.raises(SpecError) as caught:
        CliRunner().invoke(calibrate, arguments, catch_exceptions=False)
    assert says in str(caught.value)


def test_a_tokens_way_is_half_of_a_question_and_the_rest_is_the_requests():
    arrive, deliver = ways(Estimate(0.003, 0.002, 0.004), 0.0004, 0.0)
    assert (deliver.value, arrive.value) == (pytest.approx(0.0002), pytest.approx(0.0028))
    arrive, deliver = ways(Estimate(0.003, 0.0, 0.004), 0.0004, 0.0)
    assert deliver.value == 0.0


def test_a_gateway_makes_a_requests_way_longer():
    arrive, _ = ways(Estimate(0.003, 0.002, 0.004), 0.0004, 0.001)
    assert arrive.value == pytest.approx(0.0038)
