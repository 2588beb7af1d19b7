"""One question at many values of one input: all at once where a topic's laws take arrays.

Any number can be swept: a parameter, a catalog's value, an intermediate; and a choice over its
words. A topic that cannot take arrays (searches, simulations) is asked point by point, with the
same result; that an array gave what single questions give is checked at four points each time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.errors import RidgelineError, SpecError, UnitError
from ridgeline.quantity import Provenance, Quantity, replaced
from ridgeline.show import show
from ridgeline.topics import Asked, Kind, Parameter, alike, ask, find_topic, typed, unknown_step
from ridgeline.units import Unit, parse_number, parse_unit
from ridgeline.working.binding import binding_at, choices
from ridgeline.working.formula import short
from ridgeline.working.knee import Knee, knee
from ridgeline.working.span import span

_WHERE = "--sweep"
_AGREE = 1e-9
#: Kinds that are swept over words.
_WORDS = (Kind.CHOICE, Kind.FLAG, Kind.MODEL, Kind.ACCELERATOR)
_NOT_SWEPT = (Kind.LIST, Kind.TEXT)


@dataclass(frozen=True)
class Target:
    """What is swept: a parameter, or any step by name."""

    name: str
    unit: Unit | None
    parameter: Parameter | None = None

    @property
    def is_number(self) -> bool:
        """Whether its points are numbers; else they are words."""
        return self.unit is not None


@dataclass(frozen=True)
class Column:
    """One value of the answer over the points; NaN where the topic refused."""

    unit: Unit
    values: NDArray[np.float64]

    def at(self, point: int) -> Quantity:
        """The value at one point."""
        return Quantity(float(self.values[point]), self.unit)


@dataclass(frozen=True, slots=True)
class Slo:
    """An objective: a value that may be at most so much, and the last point that keeps it."""

    name: str
    most: Quantity
    last: int | None


@dataclass(frozen=True)
class Sweep:
    """The points with the answer's values, what bound at each, and where the curve has its knee.

    `refused` has the reason by point. `changes` are points where something else binds than at the
    one before, with what changed. `versus` is the value that the headline is traded against: then
    the knee is that of the trade.
    """

    asked: Asked
    target: Target
    points: list[Any]
    columns: dict[str, Column]
    binds: list[dict[str, str]]
    refused: dict[int, str]
    is_geometric: bool
    is_vectorised: bool
    knee: Knee
    changes: dict[int, str] = field(default_factory=dict)
    versus: str = ""
    slo: Slo | None = None

    @property
    def headline(self) -> str:
        """The value that the knee is of."""
        return next(iter(self.columns))

    def point(self, index: int) -> str:
        """A point as a person reads it."""
        value = self.points[index]
        return show(Quantity(value, self.target.unit)) if self.target.unit else str(value)


def sweep(
    topic: str,
    written: str,
    given: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    value: str = "",
    versus: str = "",
    slo: str = "",
    at_once: bool = True,
) -> Sweep:
    """Answer a topic over `NAME=a:b[:step]` or `NAME=a,b,c`.

    `value` is which of the answer's values is looked at, the first unless said; `versus` another
    one that it is traded against; `slo` (`NAME=VALUE`) what one of them may be at most. `at_once`
    False asks point by point even where arrays would do. Raises SpecError, CatalogError and
    UnitError.
    """
    name, equals, text = written.partition("=")
    if not equals or not text.strip():
        raise SpecError(f'"{written}" has no values', where=_WHERE, remedy="NAME=a:b or NAME=a,b,c")
    base = _base(topic, name.strip(), text, dict(given or {}), dict(overrides or {}))
    target = _target(base, name.strip())
    points, geometric = _points(target, text, base)
    rows, together = _asked(base, target, points, at_once=at_once)
    columns, binds, refused = _gathered(rows, points, together)
    headline = _value_name(columns, value, "--value") if value else next(iter(base.answer.values))
    ordered = {headline: columns[headline]} | columns
    traded = _value_name(columns, versus, "--versus") if versus else ""
    across = columns[traded].values if traded else points
    return Sweep(
        base,
        target,
        points,
        ordered,
        binds,
        refused,
        is_geometric=geometric,
        is_vectorised=bool(together),
        knee=_bend(across, ordered[headline].values, target),
        changes=_changes(binds, refused),
        versus=traded,
        slo=_slo(columns, slo) if slo else None,
    )


def _base(
    topic: str, name: str, text: str, given: dict[str, Any], overrides: dict[str, Any]
) -> Asked:
    """The answer without the sweep; where that is refused, the one at the sweep's first point."""
    try:
        return ask(topic, given, overrides)
    except RidgelineError:
        parameters = find_topic(topic).parameters
        meant = name if name in parameters else next(iter(alike(name, list(parameters))), "")
        first = text.split(":" if ":" in text else ",")[0]
        if not meant:
            return ask(topic, given, {**overrides, name: first})
        return ask(topic, {**given, meant: first}, overrides)


def _target(base: Asked, name: str) -> Target:
    parameters = base.topic.parameters
    exact = parameters.get(name)
    steps = [] if exact else base.find(name)
    if exact is None and not any(name in (one.name, short(one.name)) for one in steps):
        meant = alike(name, list(parameters))
        exact = parameters[meant[0]] if meant else None
    if exact is not None:
        if exact.kind in _NOT_SWEPT:
            raise SpecError(
                f"{exact.name} is neither a number nor one word",
                where=_WHERE,
                remedy=f"--{exact.option} one after another",
            )
        number = base.inputs[exact.name] if exact.is_number else None
        return Target(exact.name, number.unit if number is not None else None, exact)
    if not steps:
        raise unknown_step(name, base, _WHERE)
    names = {one.name for one in steps}
    is_short = any(name == short(one) for one in names)
    return Target(name if is_short and len(names) > 1 else steps[0].name, steps[0].unit)


def _points(target: Target, text: str, base: Asked) -> tuple[list[Any], bool]:
    if target.parameter is not None and target.parameter.kind in _WORDS:
        words = [word.strip() for word in text.split(",")]
        for word in words:
            typed(target.parameter, word, is_given=True)
        return words, False
    assert target.unit is not None, target.name
    return span(text, target.unit.dimension, whole=_is_whole(target, base))


def _is_whole(target: Target, base: Asked) -> bool:
    """Whether only whole numbers make sense: counts, tokens, layers and heads of a catalog."""
    if target.parameter is not None:
        tokens = parse_unit(target.parameter.unit).dimension == parse_unit("token").dimension
        return target.parameter.kind is Kind.COUNT or tokens
    steps = base.find(target.name)
    plain = all(not one.dimension and not one.op and abs(one.value) >= 1 for one in steps)
    return plain and all(float(one.value).is_integer() for one in steps)


def _asked(
    base: Asked, target: Target, points: list[Any], *, at_once: bool
) -> tuple[list[Asked | RidgelineError], Asked | None]:
    """The answers point by point, or one whose values are arrays."""
    if at_once and target.is_number and len(points) > 1:
        together = _together(base, target, np.asarray(points, dtype=float))
        if together is not None:
            return [], together
    return [_one(base, target, point) for point in points], None


def _one(base: Asked, target: Target, point: Any) -> Asked | RidgelineError:
    try:
        return _with(base, target, point)
    except RidgelineError as error:
        return error


def _with(base: Asked, target: Target, point: Any) -> Asked:
    topic = base.topic.name
    if target.parameter is None:
        return ask(topic, base.given, {**base.overrides, target.name: _setting(point)})
    if target.unit is None:
        return ask(topic, {**base.given, target.name: point}, base.overrides)
    number = Quantity(
        point, target.unit, name=target.name, provenance=Provenance.GIVEN, source="you"
    )
    kept = {key: value for key, value in base.overrides.items() if key != target.name}
    return ask(topic, {**base.given, target.name: number}, kept)


def ask_at(found: Sweep, point: Any) -> Asked:
    """The question of a sweep at one more point."""
    return _with(found.asked, found.target, point)


def _setting(point: Any) -> Callable[[Quantity], Quantity]:
    return lambda was: replaced(was, point)


def _together(base: Asked, target: Target, points: NDArray[np.float64]) -> Asked | None:
    """One question with arrays; None where the topic cannot, or an array says something else."""
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            found = _with(base, target, points)
        arrays = [np.broadcast_to(q.value, points.shape) for q in found.answer.values.values()]
    except Exception:
        return None
    if not all(np.isfinite(one).all() for one in arrays):
        return None
    last = len(points) - 1
    for index in {0, last // 3, 2 * last // 3, last}:
        alone = _one(base, target, float(points[index]))
        if isinstance(alone, RidgelineError) or not _agree(found, alone, index):
            return None
    return found


def _agree(together: Asked, alone: Asked, index: int) -> bool:
    many, single = together.answer.values, alone.answer.values
    if list(many) != list(single):
        return False
    return all(
        many[name].dimension == one.dimension
        and np.isclose(_at(many[name].value, index), one.value, rtol=_AGREE, atol=0)
        for name, one in single.items()
    )


def _at(value: Any, index: int) -> float:
    return float(value[index] if getattr(value, "ndim", 0) > 0 else value)


def _gathered(
    rows: Sequence[Asked | RidgelineError], points: list[Any], together: Asked | None
) -> tuple[dict[str, Column], list[dict[str, str]], dict[int, str]]:
    if together is not None:
        values = together.answer.values
        found = choices(next(iter(values.values())))
        whole = {
            name: Column(q.unit, np.array(np.broadcast_to(q.value, len(points)), dtype=float))
            for name, q in values.items()
        }
        return whole, [binding_at(found, index) for index in range(len(points))], {}
    refused = {i: row.problem for i, row in enumerate(rows) if isinstance(row, RidgelineError)}
    columns: dict[str, Column] = {}
    binds: list[dict[str, str]] = []
    for index, row in enumerate(rows):
        if isinstance(row, RidgelineError):
            binds.append({})
            continue
        for name, one in row.answer.values.items():
            empty = np.full(len(points), np.nan)
            column = columns.setdefault(name, Column(one.unit, empty))
            column.values[index] = float(one.value)
        binds.append(binding_at(choices(next(iter(row.answer.values.values()))), 0))
    if not columns:
        error = next(row for row in rows if isinstance(row, RidgelineError))
        raise error
    return columns, binds, refused


def _value_name(columns: dict[str, Column], value: str, where: str) -> str:
    """The value of the answer that a person means."""
    meant = value if value in columns else next(iter(alike(value, list(columns))), "")
    if not meant:
        raise SpecError(
            f'the answer has no value "{value}"', where=where, remedy=", ".join(columns)
        )
    return meant


def _slo(columns: dict[str, Column], written: str) -> Slo:
    """The objective, and the last of the points before the first that breaks it."""
    name, equals, text = written.partition("=")
    if not equals:
        raise SpecError(f'"{written}" has no value', where="--slo", remedy="NAME=VALUE")
    meant = _value_name(columns, name.strip(), "--slo")
    column = columns[meant]
    try:
        bound, unit = parse_number(text, column.unit.dimension)
    except UnitError as error:
        raise UnitError(error.problem, where="--slo", remedy=error.remedy) from error
    values = column.values
    broken = np.flatnonzero(values > bound * (1 + _AGREE))
    kept = [i for i in range(broken[0] if len(broken) else len(values)) if np.isfinite(values[i])]
    return Slo(meant, Quantity(bound, unit, name=meant), kept[-1] if kept else None)


def _bend(across: Any, values: NDArray[np.float64], target: Target) -> Knee:
    if not target.is_number:
        return Knee(None, "words have no order")
    return knee(np.asarray(across, dtype=float), values)


def _changes(binds: list[dict[str, str]], refused: Mapping[int, str]) -> dict[int, str]:
    """By point what binds there and did not bind at the one before."""
    found: dict[int, str] = {}
    before: dict[str, str] | None = None
    for index, now in enumerate(binds):
        if index in refused:
            continue
        if before is not None and now != before:
            new = [told(owner, label) for owner, label in now.items() if before.get(owner) != label]
            gone = [f"{short(owner)} no longer decides" for owner in before if owner not in now]
            found[index] = (new or gone)[0]
        before = now
    return found


def told(owner: str, label: str) -> str:
    """One thing that binds: `memory (roofline_s)`."""
    return f"{label} ({short(owner)})" if owner else label
