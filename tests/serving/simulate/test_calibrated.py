"""Models on a machine that was measured: whose file it is, and what it changes."""

from pathlib import Path

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.plan.step_file import StepTimes, write
from ridgeline.serving.plan.step_fit import Estimate
from ridgeline.serving.simulate.calibrated import machine_of, step_times, with_ways
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


def times(model: str = "m", block_tokens: int = 16) -> StepTimes:
    return StepTimes(
        model,
        8000,
        block_tokens,
        {1: exactly(0.010), 64: exactly(0.073)},  # 9 ms, and 1 ms a row
        exactly(0.002),
        exactly(1e-5),
        exactly(0.0),
        exactly(0.004),
        exactly(0.001),
        {"command": "by hand"},
    )


@pytest.fixture
def file(tmp_path: Path) -> str:
    write(tmp_path / "m.yaml", times())
    return str(tmp_path / "m.yaml")


def test_one_request_takes_just_what_the_file_says():
    serving = Serving((Model("m", Engine(machine_of(times()))),))
    serving = with_ways(serving, {"m": times()})
    outcome = simulate(serving, OpenLoop([Request(1.0, 20, 4)], "m"))
    first_s = 0.004 + (0.009 + 20 * 0.001) + 0.001
    assert outcome.ttft_s()[0] == pytest.approx(first_s, abs=2e-9)
    decodes_s = sum(0.010 + 0.002 + cached * 1e-5 for cached in (20, 21, 22))
    assert outcome.e2e_s()[0] == pytest.approx(first_s + decodes_s, abs=2e-9)


def test_a_file_is_of_the_model_that_it_names_or_of_the_only_one(file: str):
    assert set(step_times((file,), ("n", "m"))) == {"m"}
    assert set(step_times((file,), ("only",))) == {"only"}
    assert set(step_times((f"n={file}",), ("n", "m"))) == {"n"}
    assert step_times((), ("m",)) == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("x={}",), "of the model x, which is not in the spec"),
        (("a={}", "a={}"), "two files are of a"),
        (("{}",), "of the model m, which is not in the spec"),
        (("a={}-none",), "cannot be read"),
    ],
)
def test_whose_it_is_must_be_clear(file: str, given, says: str):
    with pytest.raises(SpecError, match=says):
        step_times(tuple(one.format(file) for one in given), ("a", "b"))


def test_other_blocks_are_another_engine():
    serving = Serving((Model("m", Engine(machine_of(times()))),))
    with pytest.raises(SpecError, match="blocks of 32 tokens, the spec's have 16"):
        with_ways(serving, {"m": times(block_tokens=32)})


def test_other_models_stay_as_they_are():
    serving = Serving((Model("n", Engine(machine_of(times()))),))
    assert with_ways(serving, {"m": times()}) == serving
