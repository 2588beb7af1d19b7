"""How far each input moves the answer: one at a time, by its own interval or by a tenth.

What is varied: every input of the headline's derivation, catalog values and constants of laws
included, and every number among the topic's parameters (a condition may look at it and leave no
trace in the derivation). Whole numbers move by a tenth, by one at least; degrees of a split, and
whatever the topic refuses a tenth of, go to half and to double.

What cannot be a tenth more or less is left alone: what is true by definition, what counts the parts
of something that is built (layers, heads, experts; two all-reduces a layer), and the total of a
mixture of experts, which its parts determine.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.models import Model
from ridgeline.errors import RidgelineError, SpecError
from ridgeline.quantity import Provenance, Quantity, replaced
from ridgeline.topics import Asked, Kind, Parameter, alike, ask
from ridgeline.units import parse_unit

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
    """Swings of one value of the answer, largest first.

    `still` are inputs that move nothing, `fixed` those that are what they are and were not moved.
    """

    asked: Asked
    name: str
    value: Quantity
    swings: list[Swing]
    still: list[str]
    fixed: list[str]


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
    inputs = _inputs(base, values[name])
    fixed = [one.name for one in inputs if _is_fixed(base, one)]
    varied = [one for one in inputs if one.name not in fixed]
    swings = [_swing(base, name, leaf, values[name]) for leaf in varied]
    floor = 1e-9 * abs(float(values[name].value))
    moving = [one for one in swings if one.size > floor]
    still = [one.name for one in swings if one.size <= floor]
    return Sensitivity(
        base, name, values[name], sorted(moving, key=lambda one: -one.size), still, fixed
    )


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


def _is_fixed(base: Asked, leaf: Quantity) -> bool:
    """Whether an input cannot be a tenth more or less and still be what it is."""
    if leaf.name in base.topic.parameters or leaf.interval is not None:
        return False
    row, dot, field = leaf.name.rpartition(".")
    if dot and field.endswith("params"):
        return any(one.id == row and one.is_moe for one in _models(base))
    if dot:
        return _is_count(leaf, None)
    if _is_degree(leaf.name):
        return True
    is_law = leaf.provenance in (Provenance.ASSUMED, Provenance.DEFINED)
    whole = float(leaf.value).is_integer() and 0 <= leaf.value <= _LARGEST_COUNT
    is_value_size = leaf.name.startswith("value_bytes")  # two bytes or one: a type, not an amount
    return is_law and whole and (is_value_size or leaf.dimension in _OF_COUNTS)


def _models(base: Asked) -> list[Model]:
    return [one for one in base.inputs.values() if isinstance(one, Model)]


#: A constant of a law that is whole and at most so large counts something: vectors, matrices.
_LARGEST_COUNT = 12
_COUNTED = ("", "token", "1/token", "FLOP/token", "FLOP/token^2")
_OF_COUNTS = [parse_unit(one).dimension for one in _COUNTED]


def _is_degree(name: str) -> bool:
    """Whether it says over how many ranks something is split: these come in powers of two."""
    return name.rpartition(".")[2].endswith(("_parallel", "_degree"))


def _swing(base: Asked, name: str, leaf: Quantity, value: Quantity) -> Swing:
    parameter = base.topic.parameters.get(leaf.name)
    if leaf.interval is not None:
        ends = [_end(base, name, leaf, bound) for bound in leaf.interval]
        return Swing(leaf.name, ends[0], ends[1], "interval")
    tenth = [_moved(leaf, parameter, 1 + sign * SHARE) for sign in (-1, 1)]
    is_degree = _is_degree(leaf.name)
    ends = [] if is_degree else [_end(base, name, leaf, bound) for bound in tenth]
    told = "±1" if _is_count(leaf, parameter) and _is_by_one(leaf, tenth) else USUAL
    if is_degree or any(end.result is None for end in ends):
        wide = [_moved(leaf, parameter, factor) for factor in _HALF_AND_DOUBLE]
        wider = [_end(base, name, leaf, bound) for bound in wide]
        told = "half, double"
        ends = [far if far.result is not None else _stay(leaf, value) for far in wider]
    return Swing(leaf.name, ends[0], ends[1], told)


def _stay(leaf: Quantity, value: Quantity) -> End:
    """An end that the topic refuses: the input stays where it is."""
    return End(leaf, value)


def _is_by_one(leaf: Quantity, ends: list[float]) -> bool:
    """Whether a count moves by one, and that is not the tenth that it would move by anyway."""
    value = float(leaf.value)
    return all(abs(end - value) <= 1 for end in ends) and abs(value) * SHARE != 1


def _moved(leaf: Quantity, parameter: Parameter | None, factor: float) -> float:
    value = float(leaf.value)
    moved = value * factor
    if _is_count(leaf, parameter) and math.isfinite(moved):
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
