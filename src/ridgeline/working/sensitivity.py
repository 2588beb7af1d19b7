"""How far each input moves the answer: one at a time, by its own interval or by a tenth.

What is varied: every input of the headline's derivation, catalog values and constants of laws
included, and every number among the topic's parameters (a condition may look at it and leave no
trace in the derivation). What is true by definition is left alone. Whole numbers move by a tenth,
by one at least; where the topic refuses that, to half and to double.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import RidgelineError, SpecError
from ridgeline.quantity import Provenance, Quantity, replaced
from ridgeline.topics import Asked, Kind, Parameter, alike, ask

SHARE = 0.1
#: How that is said.
USUAL = "±10 %"
_HALF_AND_DOUBLE = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class End:
    """One end of an input's range and what the answer is there; None where it was refused."""

    input: Quantity
    result: Quantity | None


@dataclass(frozen=True, slots=True)
class Swing:
    """What one input does. `range` says in words which interval was used."""

    name: str
    low: End
    high: End
    range: str

    @property
    def size(self) -> float:
        """The distance between the least and the most of the answer; without limit if one is so."""
        values = {float(end.result.value) for end in (self.low, self.high) if end.result}
        return max(values) - min(values) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Sensitivity:
    """Swings of one value of the answer, largest first. `still` are inputs that move nothing."""

    asked: Asked
    name: str
    value: Quantity
    swings: list[Swing]
    still: list[str]


def sensitivity(
    topic: str,
    given: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    value: str = "",
) -> Sensitivity:
    """Vary every input of one value of the answer, the first unless said."""
    base = ask(topic, given, overrides)
    values = base.answer.values
    name = value if value in values else next(iter(alike(value, list(values))), "")
    name = name or ("" if value else next(iter(values)))
    if not name:
        raise SpecError(
            f'the answer has no value "{value}"', where="--value", remedy=", ".join(values)
        )
    swings = [_swing(base, name, leaf, values[name]) for leaf in _inputs(base, values[name])]
    floor = 1e-9 * abs(float(values[name].value))
    moving = [one for one in swings if one.size > floor]
    still = [one.name for one in swings if one.size <= floor]
    return Sensitivity(base, name, values[name], sorted(moving, key=lambda one: -one.size), still)


def _inputs(base: Asked, headline: Quantity) -> list[Quantity]:
    """What can be varied, each name once."""
    found: dict[str, Quantity] = {}
    for step in headline.walk():
        if not step.op and step.name and step.provenance is not Provenance.DEFINED:
            found.setdefault(step.name, step)
    for name, parameter in base.topic.parameters.items():
        if parameter.is_number:
            found.setdefault(name, base.inputs[name])
    return list(found.values())


def _swing(base: Asked, name: str, leaf: Quantity, value: Quantity) -> Swing:
    parameter = base.topic.parameters.get(leaf.name)
    if leaf.interval is not None:
        ends = [_end(base, name, leaf, bound) for bound in leaf.interval]
        return Swing(leaf.name, ends[0], ends[1], "interval")
    tenth = [_moved(leaf, parameter, 1 + sign * SHARE) for sign in (-1, 1)]
    ends = [_end(base, name, leaf, bound) for bound in tenth]
    told = USUAL if _is_tenth(leaf, tenth) else "±1"
    if any(end.result is None for end in ends):
        wide = [_moved(leaf, parameter, factor) for factor in _HALF_AND_DOUBLE]
        wider = [_end(base, name, leaf, bound) for bound in wide]
        told = "half, double"
        ends = [far if far.result is not None else _stay(leaf, value) for far in wider]
    return Swing(leaf.name, ends[0], ends[1], told)


def _stay(leaf: Quantity, value: Quantity) -> End:
    """An end that the topic refuses: the input stays where it is."""
    return End(leaf, value)


def _is_tenth(leaf: Quantity, ends: list[float]) -> bool:
    here = abs(float(leaf.value)) * SHARE
    return all(abs(abs(end - float(leaf.value)) - here) <= 0.05 * here for end in ends)


def _moved(leaf: Quantity, parameter: Parameter | None, factor: float) -> float:
    value = float(leaf.value)
    moved = value * factor
    if _is_count(leaf, parameter):
        step = 1 if factor > 1 else -1
        moved = float(round(moved)) if abs(moved - value) >= 1 else value + step
        moved = max(moved, 1.0)
    if parameter is not None:
        moved = min(max(moved, parameter.least), parameter.most)
    return moved


def _is_count(leaf: Quantity, parameter: Parameter | None) -> bool:
    """Devices, layers, heads: what comes in whole pieces. Constants of laws are no counts."""
    if parameter is not None:
        return parameter.kind is Kind.COUNT
    is_row = "." in leaf.name
    return is_row and not leaf.dimension and float(leaf.value).is_integer() and leaf.value >= 1


def _end(base: Asked, name: str, leaf: Quantity, bound: float) -> End:
    moved = leaf.but(value=bound, interval=None)
    if bound == leaf.value:
        return End(moved, base.answer.values[name])
    overrides = {**base.overrides, leaf.name: lambda was: replaced(was, bound)}
    try:
        found = ask(base.topic.name, base.given, overrides)
    except RidgelineError:
        return End(moved, None)
    return End(moved, found.answer.values.get(name))
