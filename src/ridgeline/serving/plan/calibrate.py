"""Fits the step-time model to measured runs: `ridgeline calibrate`.

A run is a closed loop: so many clients, each with a prompt and an answer of about one length, and
the mean time per output token. One fit for each model, accelerator, engine, version and dtype; the
prior is what the catalog has for them, so a few runs move only what they speak of.
"""

import csv
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.catalog.step_times import ANY, FAMILIES, KEY, step_coefficients
from ridgeline.errors import RidgelineError, SpecError
from ridgeline.physics.fit import NOISE_SD, PRIOR_SD, Fit, Vector, fit
from ridgeline.physics.step_time import NAMES, Coefficients, Shape, StepTime, closed_loop_tpot_s
from ridgeline.quantity import given, value_of
from ridgeline.serving.plan.steps import family_of, shape_of

_WORDS = ("model", "accelerator", "engine")
_NUMBERS = ("tensor_parallel", "concurrency", "input_tokens", "output_tokens")
_TPOTS = ("tpot_ms", "tpot_s")
#: No engine takes less or more than this for a token.
_LEAST_S, _MOST_S = 1e-6, 1e3
_MOST = 1e9
#: A median error above this says that the runs and the model do not speak of the same thing.
BELIEVABLE = 0.3


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run; `key` in the order of `KEY`, lengths in tokens, time in seconds."""

    key: tuple[str, ...]
    kv_dtype: str
    tensor_parallel: int
    concurrency: float
    input_tokens: float
    output_tokens: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit for one key, with the errors of its runs before and after: shares, one for each."""

    key: tuple[str, ...]
    fitted: Fit
    before: Vector
    after: Vector

    @property
    def is_believable(self) -> bool:
        """Whether the model, fitted, tells what was measured."""
        return float(np.median(self.after)) <= BELIEVABLE

    def row(self, source: str) -> dict[str, Any]:
        """A row of a catalog's `step_times`."""
        named = dict(zip(KEY, self.key, strict=True))
        coefficients = {}
        for index, name in enumerate(NAMES):
            low, high = self.fitted.interval(index)
            values = {"value": self.fitted.values[index], "low": low, "high": high}
            coefficients[name] = {word: float(f"{value:.6g}") for word, value in values.items()}
        words = [named[word] for word in ("model", "accelerator", "engine", "version", "dtype")]
        return {
            "id": "/".join(word for word in words if word != ANY),
            **named,
            "coefficients": coefficients,
            "points": len(self.after),
            "median_error": float(f"{np.median(self.after):.4g}"),
            "source": source,
            "read_on": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }


def read_runs(file: Path) -> list[Run]:
    """The runs of a CSV; SpecError with the line and the field for what cannot be read.

    Columns: model, accelerator, engine, tensor_parallel, concurrency, input_tokens, output_tokens,
    either tpot_ms or tpot_s; where known also version, dtype (bf16) and kv_dtype (bf16).
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", where=str(file), remedy="a CSV file") from error
    reader = csv.DictReader(text.splitlines())
    _check_columns(reader.fieldnames or (), str(file))
    rows = [(reader.line_num, row) for row in reader]
    if not rows:
        raise SpecError("has no runs", where=str(file), remedy="a header and a row for each run")
    return [_run(row, f"{file.name}, line {line}") for line, row in rows]


def _check_columns(columns: Sequence[str], where: str) -> None:
    """SpecError where a column is missing or there twice, or the time is told twice."""
    if not columns:
        return  # an empty file has no runs, and that is said
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise SpecError(f"has the column {twice[0]} twice", where=where, remedy="one of them")
    tpots = [name for name in _TPOTS if name in columns]
    if len(tpots) > 1:
        raise SpecError(f"has both {' and '.join(tpots)}", where=where, remedy="one of them")
    missing = [name for name in (*_WORDS, *_NUMBERS) if name not in columns]
    missing += [] if tpots else ["tpot_ms"]
    if missing:
        raise SpecError(f"has no column {missing[0]}", where=where, remedy=", ".join(missing))


def _run(row: Mapping[str | None, Any], where: str) -> Run:
    if None in row:
        raise SpecError("has too many cells", where=where, remedy="as many as the header has")
    words = {name: (row.get(name) or "").strip() for name in (*KEY, "kv_dtype")}
    empty = next((name for name in _WORDS if not words[name]), None)
    if empty:
        raise SpecError(f"{empty} is empty", where=where, remedy=f"the {empty}'s name")
    try:
        words["model"] = model(words["model"]).id
        words["accelerator"] = accelerator(words["accelerator"]).id
    except RidgelineError as error:
        raise SpecError(error.problem, where=where, remedy=error.remedy) from error
    words["version"] = words["version"] or ANY
    words["dtype"] = words["dtype"] or "bf16"
    numbers = {name: _positive(row, name, where) for name in _NUMBERS}
    _check_parallel(words["model"], numbers["tensor_parallel"], where)
    tpot_s = _tpot_s(row, where)
    return Run(
        tuple(words[name] for name in KEY),
        words["kv_dtype"] or "bf16",
        round(numbers.pop("tensor_parallel")),
        tpot_s=tpot_s,
        **numbers,
    )


def _positive(row: Mapping[str | None, Any], name: str, where: str) -> float:
    try:
        value = float(row.get(name) or "")
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        told = f"{name} is {row.get(name)!r}"
        raise SpecError(told, where=where, remedy="a number above 0")
    if name in _NUMBERS and value > _MOST:
        raise SpecError(f"{name} is {value:g}", where=where, remedy=f"at most {_MOST:g}")
    return value


def _tpot_s(row: Mapping[str | None, Any], where: str) -> float:
    name = next(one for one in _TPOTS if one in row)
    scale = 1e3 if name == "tpot_ms" else 1.0
    seconds = _positive(row, name, where) / scale
    if not _LEAST_S <= seconds <= _MOST_S:
        told = f"{name} is {row[name]}, which no engine takes for a token"
        remedy = f"{_LEAST_S * scale:g} to {_MOST_S * scale:g}, in {name.rpartition('_')[2]}"
        raise SpecError(told, where=where, remedy=remedy)
    return seconds


def _check_parallel(name: str, degree: float, where: str) -> None:
    """SpecError for a degree that is no whole number, or that the heads cannot be divided by."""
    heads = round(model(name).heads.value)
    if degree != round(degree) or heads % round(degree):
        fitting = ", ".join(str(one) for one in range(1, min(heads, 64) + 1) if heads % one == 0)
        told = f"tensor_parallel is {degree:g}, which does not divide the {heads} heads of {name}"
        raise SpecError(told, where=where, remedy=fitting)


def fit_all(
    runs: Sequence[Run], *, prior_sd: float = PRIOR_SD, noise_sd: float = NOISE_SD
) -> list[Calibration]:
    """A fit for each key among the runs, in their order.

    Raises CatalogError where a model, a device or a type lacks a number that the model needs.
    """
    by_key: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    return [
        fit_runs(key, some, prior_of(key), prior_sd=prior_sd, noise_sd=noise_sd)
        for key, some in by_key.items()
    ]


def prior_of(key: tuple[str, ...]) -> Vector:
    """What the catalog holds for this key, as a fit's vector."""
    named = dict(zip(KEY, key, strict=True))
    family = named["model"] if named["model"] in FAMILIES else family_of(model(named["model"]))
    fitted = step_coefficients(family, **named).coefficients
    return np.array([value_of(getattr(fitted, name)) for name in NAMES])


def fit_runs(
    key: tuple[str, ...],
    runs: Sequence[Run],
    prior: Vector,
    *,
    prior_sd: float | Vector = PRIOR_SD,
    noise_sd: float = NOISE_SD,
) -> Calibration:
    """One fit to all these runs, whatever their own keys are."""
    predict = prediction(runs)
    measured = np.array([run.tpot_s for run in runs])
    found = fit(predict, measured, prior, prior_sd=prior_sd, noise_sd=noise_sd)
    errors = [np.abs(predict(values) / measured - 1) for values in (prior, found.values)]
    return Calibration(key, found, *errors)


def prediction(runs: Sequence[Run]) -> Callable[[Vector], Vector]:
    """Time per output token of each run, as a function of the coefficients."""
    shape = _stacked([_shape(run) for run in runs])
    concurrency, prompt, answer = (
        np.array([getattr(run, name) for run in runs])
        for name in ("concurrency", "input_tokens", "output_tokens")
    )

    def predict(values: Vector) -> Vector:
        steps = StepTime(shape, Coefficients(*values))
        decode_s = steps.decode_s(concurrency, concurrency * (prompt + answer / 2))
        found = closed_loop_tpot_s(decode_s, steps.prefill_s(prompt), concurrency, answer)
        return np.asarray(found, dtype=np.float64)

    return predict


def _shape(run: Run) -> Shape:
    named = dict(zip(KEY, run.key, strict=True))
    return shape_of(
        model(named["model"]),
        accelerator(named["accelerator"]),
        given(run.tensor_parallel),
        named["dtype"],
        run.kv_dtype,
    )


def _stacked(shapes: Sequence[Shape]) -> Shape:
    """One shape whose numbers are arrays, a value for each run."""
    names = [field.name for field in fields(Shape)]
    return Shape(
        **{name: np.array([value_of(getattr(one, name)) for one in shapes]) for name in names}
    )
