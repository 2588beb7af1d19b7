"""What was given and makes no difference here, and why: nothing that a person says is dropped.

The question is asked again with other values of each thing that was given; where no result changes,
that is said, with the branch that binds instead where there is one.
"""

import math
from collections.abc import Iterator
from typing import Any

from ridgeline.catalog.accelerators import accelerators
from ridgeline.catalog.models import models
from ridgeline.errors import RidgelineError
from ridgeline.quantity import Override, Quantity, replaced
from ridgeline.show import show
from ridgeline.topics import Asked, Kind, Parameter, ask
from ridgeline.working.binding import CHOOSERS, active, ordered, somewhere
from ridgeline.working.formula import short

_FACTORS = (1.1, 0.9, 2.0, 0.5, 8.0, 0.125)
_IS_NEAR = (True, True, False, False, False, False)
_MOST_ROWS = 6


def unused(asked: Asked) -> list[str]:
    """One sentence for each thing that was given and does not matter here."""
    told = [_parameter(asked, asked.topic.parameters[name]) for name in asked.given]
    told += [_override(asked, name) for name in asked.overrides]
    return [one for one in told if one]


def results(asked: Asked, apart: str = "") -> tuple[Any, ...]:
    """All that an answer says in numbers and words, to be compared with another's.

    A value called `apart` is left out: that a number is itself is no result.
    """
    answer = asked.answer
    rows = tuple(
        tuple(_bare(cell) for cell in row.values() if not _is_apart(cell, apart))
        for row in answer.table
    )
    values = (one for one in answer.values.values() if not _is_apart(one, apart))
    return (*(_bare(value) for value in values), rows, answer.notes, answer.ok)


def _is_apart(cell: Any, apart: str) -> bool:
    return bool(apart) and isinstance(cell, Quantity) and cell.name == apart


def _bare(cell: Any) -> Any:
    return repr(cell.value) if isinstance(cell, Quantity) else cell


def reached(asked: Asked, name: str) -> tuple[bool, bool]:
    """Whether a step of that name is behind the answers, and whether through branches that bind."""
    masks = active(asked.roots)
    steps = [step for step in ordered(asked.roots) if _is_called(step, name)]
    return bool(steps), any(somewhere(masks[id(step)]) for step in steps)


def _is_called(step: Quantity, name: str) -> bool:
    """Whether the step has this name, or is a value of the catalog's row of this name."""
    full = step.name
    return bool(full) and name in (full, short(full), full.rpartition(".")[0])


def _parameter(asked: Asked, parameter: Parameter) -> str:
    name = parameter.name
    is_row = parameter.kind in (Kind.MODEL, Kind.ACCELERATOR)
    if is_row and reached(asked, asked.inputs[name].id)[1]:
        return ""
    if parameter.is_number:
        now = asked.inputs[name]
        return _number(asked, now, [_varied(parameter, float(now.value), f) for f in _FACTORS])
    if any(_differs(asked, other) for other in _others(asked, parameter)):
        return ""
    return _sentence(name, "the answer does not use it")


def _override(asked: Asked, name: str) -> str:
    steps = asked.find(name)
    if not steps:
        return _sentence(name, "the answer does not use it")
    now = steps[0]
    if now.name and now.name == next(iter(asked.answer.values.values())).name:
        return ""  # the headline itself was set
    others = [float(now.value) * factor for factor in _FACTORS]
    return _number(asked, now, others, apart=now.name)


def _number(asked: Asked, now: Quantity, others: list[float], apart: str = "") -> str:
    """What is to be said of a number: nothing where a tenth more or less changes a result."""
    is_known_nearby = False
    for value, is_near in zip(others, _IS_NEAR, strict=True):
        differs = None if value == now.value else _differs(asked, {}, {now.name: value}, apart)
        if differs and (is_near or not is_known_nearby):
            return ""
        if differs:
            return _sentence(short(now.name), f"it would at {show(now.but(value=value))}")
        is_known_nearby = is_known_nearby or differs is False
    there, binds = reached(asked, now.name)
    if not there:
        return _sentence(short(now.name), "the answer does not use it")
    if not binds:
        return _sentence(short(now.name), _losing(asked, now.name))
    if any(_is_apart(one, apart) for one in asked.answer.values.values()):
        return _sentence(short(now.name), "it is printed, and nothing else follows from it")
    ends = [show(now.but(value=end)) for end in (min(others), max(others))]
    return _sentence(short(now.name), f"nothing changes between {ends[0]} and {ends[1]}")


def _differs(
    asked: Asked,
    given: dict[str, Any],
    numbers: dict[str, float] | None = None,
    apart: str = "",
) -> bool | None:
    """Whether a result differs with other values; None where the topic refuses them."""
    steps = {name: _setting(value) for name, value in (numbers or {}).items()}
    try:
        other = ask(asked.topic.name, {**asked.given, **given}, {**asked.overrides, **steps})
    except RidgelineError:
        return None
    return results(other, apart) != results(asked, apart)


def _setting(value: float) -> Override:
    return lambda was: replaced(was, value)


def _others(asked: Asked, parameter: Parameter) -> Iterator[dict[str, Any]]:
    """Other values of a parameter that is no number."""
    name, now = parameter.name, asked.inputs[parameter.name]
    match parameter.kind:
        case Kind.CHOICE | Kind.TEXT:
            yield from ({name: one} for one in parameter.options if one != now)
        case Kind.FLAG:
            yield {name: not now}
        case Kind.MODEL:
            yield from ({name: one} for one in models()[:: len(models()) // _MOST_ROWS])
        case Kind.ACCELERATOR:
            yield from ({name: one} for one in accelerators()[:: len(accelerators()) // _MOST_ROWS])
        case Kind.LIST:
            for factor in _FACTORS:
                yield {name: [one.but(value=one.value * factor) for one in now]}


def _varied(parameter: Parameter, value: float, factor: float) -> float:
    """Another value of a number within its bounds; a count stays whole and moves by one or more."""
    other = value * factor if value else factor - 1
    if parameter.kind is Kind.COUNT and math.isfinite(other):
        other = round(other) if abs(other - value) >= 1 else value + (1 if factor > 1 else -1)
    return min(max(other, parameter.least), parameter.most)


def _losing(asked: Asked, name: str) -> str:
    """Which chooser takes another branch than the one that the step is on."""
    masks = active(asked.roots)
    for step in ordered(asked.roots):
        if step.op not in CHOOSERS or not somewhere(masks[id(step)]):
            continue
        behind = [
            isinstance(arg, Quantity) and any(_is_called(one, name) for one in arg.walk())
            for arg in step.args
        ]
        if any(behind) and getattr(step.chosen, "ndim", 0) == 0 and not behind[int(step.chosen)]:
            return _told(asked, step, behind.index(True))
    return "no number changes with it"


def _told(asked: Asked, step: Quantity, lost: int) -> str:
    taken = int(step.chosen)
    if step.op == "if":
        return f"it would where {step.labels[lost]}"
    owner = next((one.name for one in ordered(asked.roots) if one.name and step in _own(one)), "")
    of = f" {short(owner)}" if owner else ""
    values = [show(arg if isinstance(arg, Quantity) else step.but(value=arg)) for arg in step.args]
    told = [f"{step.labels[i]} ({values[i]})" for i in (taken, lost)]
    return f"{told[0]} binds{of}, not {told[1]}"


def _own(step: Quantity) -> list[Quantity]:
    """A named step and what it is made of up to the next names."""
    found, waiting = [step], list(step.inputs)
    while waiting:
        one = waiting.pop()
        if not one.name:
            found.append(one)
            waiting.extend(one.inputs)
    return found


def _sentence(name: str, because: str) -> str:
    return f"{name} was given and does not matter here: {because}."
