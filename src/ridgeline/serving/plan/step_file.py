"""The calibration file: step times of one running engine, frozen, with where they come from.

`ridgeline calibrate --from-live` writes it, `ridgeline simulate serving --step-times` reads it. A
file whose numbers could not be of an engine is refused, and so is a key that nobody reads.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from ridgeline.errors import SpecError
from ridgeline.physics.step_table import StepTable
from ridgeline.serving.plan.step_fit import Estimate

FORMAT = 1
_SLOPES = ("sequence_s", "cached_s_per_token", "attended_s_per_pair")
_WAYS = ("arrive_s", "deliver_s")
_COUNTS = ("kv_tokens", "block_tokens")
_KEYS = ("step_times", "model", *_COUNTS, "curve", *_SLOPES, *_WAYS, "source")
_MOST_S = 1e4


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a calibration found. `curve` is by the rows of a step, `source` says whence it comes."""

    model: str
    kv_tokens: int
    block_tokens: int
    curve: Mapping[int, Estimate]
    sequence_s: Estimate
    cached_s_per_token: Estimate
    attended_s_per_pair: Estimate
    arrive_s: Estimate
    deliver_s: Estimate
    source: Mapping[str, Any]

    @property
    def table(self) -> StepTable:
        """As `physics` has it."""
        slopes = (getattr(self, name).value for name in _SLOPES)
        return StepTable(tuple(self.curve), tuple(e.value for e in self.curve.values()), *slopes)


def write(file: Path, times: StepTimes) -> None:
    """Whole or not at all. Raises SpecError where it cannot be written."""
    content: dict[str, Any] = {"step_times": FORMAT, "model": times.model}
    content |= {name: getattr(times, name) for name in _COUNTS}
    content["curve"] = [{"rows": rows, **_told(one)} for rows, one in times.curve.items()]
    content |= {name: _told(getattr(times, name)) for name in (*_SLOPES, *_WAYS)}
    content["source"] = dict(times.source)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), "utf-8")
        fresh.replace(file)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        problem = f"cannot be written: {error.strerror}"
        raise SpecError(problem, where=str(file), remedy="--file with another path") from error


def read(file: Path) -> StepTimes:
    """What a file says. Raises SpecError with the field for what cannot be."""
    where = file.name
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = f"cannot be read: {' '.join(str(error).split())}"
        raise SpecError(problem, where=where, remedy="a file of calibrate --from-live") from error
    if not isinstance(content, dict) or content.get("step_times") != FORMAT:
        raise SpecError(
            f"is no file of step times (it has no `step_times: {FORMAT}`)",
            where=where,
            remedy="ridgeline calibrate --from-live URL --file FILE",
        )
    if wrong := sorted(map(str, set(content) ^ set(_KEYS))):
        word = "is missing" if wrong[0] in _KEYS else "is not known"
        raise SpecError(word, where=f"{where}, {wrong[0]}", remedy=f"keys: {', '.join(_KEYS)}")
    return _checked(content, where)


def _checked(content: Mapping[str, Any], where: str) -> StepTimes:
    rows = content["curve"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SpecError("is no list of points", where=f"{where}, curve", remedy="rows and value")
    curve: dict[int, Estimate] = {}
    for index, row in enumerate(rows):
        at = f"{where}, curve[{index}]"
        curve[_count(row.get("rows"), f"{at}.rows")] = _estimate(
            {key: value for key, value in row.items() if key != "rows"}, at
        )
    estimates = {name: _estimate(content[name], f"{where}, {name}") for name in (*_SLOPES, *_WAYS)}
    kv_tokens, block_tokens = (_count(content[name], f"{where}, {name}") for name in _COUNTS)
    times = StepTimes(
        _text(content["model"], f"{where}, model"),
        kv_tokens,
        block_tokens,
        curve,
        **estimates,
        source=_source(content["source"], f"{where}, source"),
    )
    try:
        _ = times.table
    except ValueError as error:  # it is no curve
        remedy = "the file as it was written"
        raise SpecError(str(error), where=f"{where}, curve", remedy=remedy) from error
    return times


def _told(one: Estimate) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in asdict(one).items()}


def _estimate(value: Any, where: str) -> Estimate:
    names = ("value", "low", "high")
    if not isinstance(value, dict) or set(value) != set(names):
        raise SpecError("is no value with its interval", where=where, remedy="value, low, high")
    for name in names:
        number = value[name]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise SpecError(f"is {number!r}", where=f"{where}.{name}", remedy="a number")
        if not 0 <= number < _MOST_S:
            remedy = f"from 0 to {_MOST_S:g} seconds"
            raise SpecError(f"is {number:g}", where=f"{where}.{name}", remedy=remedy)
    if not value["low"] <= value["value"] <= value["high"]:
        raise SpecError("is outside its interval", where=where, remedy="low <= value <= high")
    return Estimate(*(float(value[name]) for name in names))


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(f"is {value!r}", where=where, remedy="a whole number from 1 on")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise SpecError(f"is {value!r}", where=where, remedy="the name that clients call")
    return value


def _source(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not value.get("command"):
        raise SpecError("says not whence it comes", where=where, remedy="command, url and date")
    return value
