"""A file of step times is read as it was written, and nothing that could not be one is read."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ridgeline.errors import SpecError
from ridgeline.serving.plan.step_file import StepTimes, read, write
from ridgeline.serving.plan.step_fit import Estimate


def about(value: float) -> Estimate:
    return Estimate(value, value / 2, value * 2)


TIMES = StepTimes(
    "m",
    43392,
    16,
    {1: about(0.007), 8: about(0.0125), 512: about(0.16)},
    about(1e-4),
    about(1.25e-6),
    about(3e-8),
    about(0.003),
    Estimate(0.0001, 0.0, 0.0002),
    {"command": "ridgeline calibrate --from-live URL", "median_error": 0.012},
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "steps.yaml"
    write(path, TIMES)
    return path


def changed(file: Path, **new: object) -> None:
    content = yaml.safe_load(file.read_text())
    content.update(new)
    file.write_text(yaml.safe_dump({key: value for key, value in content.items() if value != "-"}))


def test_what_was_written_is_read(file: Path):
    assert read(file) == TIMES
    assert read(file).table.step_s(8, 0.0) == pytest.approx(0.0125 + 8e-4)


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path):
    with pytest.raises(SpecError, match="cannot be written"):
        write(tmp_path / "no" / "steps.yaml", TIMES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("new", "where", "says"),
    [
        ({"step_times": 2}, "steps.yaml", "is no file of step times"),
        ({"colour": 1}, "colour", "is not known"),
        ({"kv_tokens": "-"}, "kv_tokens", "is missing"),
        ({"kv_tokens": 0}, "kv_tokens", "is 0"),
        ({"model": 7}, "model", "is 7"),
        ({"sequence_s": 0.1}, "sequence_s", "is no value with its interval"),
        ({"sequence_s": {"value": -1.0, "low": -2.0, "high": 0.0}}, "sequence_s.value", "is -1"),
        ({"arrive_s": {"value": "x", "low": 0, "high": 1}}, "arrive_s.value", "is 'x'"),
        ({"arrive_s": {"value": 3.0, "low": 0, "high": 1}}, "arrive_s", "outside its interval"),
        ({"arrive_s": {"value": float("nan"), "low": 0, "high": 1}}, "arrive_s.value", "is nan"),
        ({"curve": 3}, "curve", "is no list of points"),
        ({"curve": [{"rows": 1, "value": 0.1, "low": 0.1, "high": 0.1}]}, "curve", "two points"),
        ({"source": {}}, "source", "says not whence it comes"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(file: Path, new, where: str, says: str):
    changed(file, **new)
    with pytest.raises(SpecError, match=says) as caught:
        read(file)
    assert caught.value.where.endswith(where)


def test_a_curve_that_falls_is_refused(file: Path):
    low = {"value": 0.01, "low": 0.01, "high": 0.01}
    changed(file, curve=[{"rows": 1, **low}, {"rows": 8, **dict.fromkeys(low, 0.005)}])
    with pytest.raises(SpecError, match="more rows take no less time"):
        read(file)


def test_a_file_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(SpecError, match="cannot be read"):
        read(tmp_path / "none.yaml")
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(SpecError, match="cannot be read"):
        read(tmp_path / "a.yaml")


def test_the_smallest_numbers_come_back_as_numbers(tmp_path: Path):
    times = replace(TIMES, attended_s_per_pair=Estimate(1e-11, 0.0, 1e-5))
    write(tmp_path / "s.yaml", times)
    assert read(tmp_path / "s.yaml").attended_s_per_pair == Estimate(1e-11, 0.0, 1e-5)
