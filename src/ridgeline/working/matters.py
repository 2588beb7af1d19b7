"""What was given and makes no difference here, and why: nothing that a person says is dropped.

A number that the answers depend on through branches that bind matters. For all else the question
is asked again with other values, and where no result changes, that is said.
"""

from collections.abc import Iterator
from typing import Any

from ridgeline.catalog.accelerators import accelerators
from ridgeline.catalog.models import models
from ridgeline.errors import RidgelineError
from ridgeline.quantity import Quantity
from ridgeline.show import show
from ridgeline.topics import Asked, Kind, Parameter, ask
from ridgeline.working.binding import CHOOSERS, active, ordered, somewhere
from ridgeline.working.formula import short

_FACTORS = (1.1, 0.9, 2.0, 0.5, 8.0, 0.125)
_NEAR = 2  # how many of the factors are small changes
_MOST_ROWS = 6


def unused(asked: Asked) -> list[str]:
    """One sentence for each thing that was given and does not matter here."""
    told = [_parameter(asked, asked.topic.parameters[name]) for name in asked.given]
    told += [_override(asked, name) for name in asked.overrides]
    return [one for one in told if one]


def results(asked: Asked) -> tuple[Any, ...]:
    """All that an answer says in numbers and words, to be compared with another's."""
    answer = asked.answer
    rows = tuple(tuple(_bare(cell) for cell in row.values()) for row in answer.table)
    return (*(_bare(value) for value in answer.values.values()), rows, answer.notes, answer.ok)


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
    return bool(full) and name in (full, short(full), full.split(".", 1)[0])


def _parameter(asked: Asked, parameter: Parameter) -> str:
    name = parameter.name
    if parameter.is_number or parameter.kind in (Kind.MODEL, Kind.ACCELERATOR):
        step = name if parameter.is_number else asked.inputs[name].id
        there, binds = reached(asked, step)
        if binds:
            return ""
    else:
        step, there = name, False
    changed_at = next(
        (other for other in _others(asked, parameter) if _differs(asked, other)), None
    )
    if changed_at is None:
        return _sentence(name, _losing(asked, step) if there else "the answer does not use it")
    is_near = changed_at.get("_near", True)
    return "" if is_near else _sentence(name, f"it would from {show(changed_at[name])} on")


def _differs(asked: Asked, other: dict[str, Any]) -> bool:
    given = {**asked.given, **{k: v for k, v in other.items() if k != "_near"}}
    try:
        return results(ask(asked.topic.name, given, asked.overrides)) != results(asked)
    except RidgelineError:
        return False


def _others(asked: Asked, parameter: Parameter) -> Iterator[dict[str, Any]]:
    """The question's parameter with other values, near ones first."""
    name, now = parameter.name, asked.inputs[parameter.name]
    match parameter.kind:
        case Kind.AMOUNT | Kind.COUNT:
            for index, factor in enumerate(_FACTORS):
                value = _varied(parameter, float(now.value), factor)
                if value != now.value:
                    yield {name: now.but(value=value, op="", args=()), "_near": index < _NEAR}
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
    if parameter.kind is Kind.COUNT:
        other = round(other) if abs(other - value) >= 1 else value + (1 if factor > 1 else -1)
    return min(max(other, parameter.least), parameter.most)


def _override(asked: Asked, name: str) -> str:
    there, binds = reached(asked, name)
    if binds:
        return ""
    was = {key: value for key, value in asked.overrides.items() if key != name}
    try:
        if results(ask(asked.topic.name, asked.given, was)) != results(asked):
            return ""
    except RidgelineError:
        return ""
    return _sentence(name, _losing(asked, name) if there else "the answer does not use it")


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
