"""What can be asked next of an answer: options that work on it, not options in general."""

import math
import shlex
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.topics import Asked, Kind, Parameter, ask
from ridgeline.units import Unit, parse_unit
from ridgeline.working.matters import reached, results

_WIDE = 4.0
_K = 1024
_USUAL = ("fp8",)
_LETTERS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
_TOKEN = parse_unit("token").dimension


def following(asked: Asked) -> str:
    """`ridgeline plan TOPIC … --why | --sweep context=1k:32k | --sensitivity | --set …`."""
    options = ["--why", *_sweep(asked), "--sensitivity", *_set(asked)]
    return f"ridgeline plan {asked.topic.name} … {' | '.join(options)}"


def _sweep(asked: Asked) -> list[str]:
    """A sweep of the first number that the headline depends on."""
    numbers = [one for one in asked.topic.parameters.values() if one.is_number]
    numbers.sort(key=lambda one: one.kind is Kind.COUNT)
    for one in numbers:
        if not reached(asked, one.name)[1] or not float(asked.inputs[one.name].value):
            continue
        now = asked.inputs[one.name]
        low = max(float(now.value) / _WIDE, one.least)
        high = min(float(now.value) * _WIDE, one.most)
        if not low < high < math.inf:
            continue
        text = _span(one, low, high, now.unit)
        if low < high and _works(asked, {one.name: now.but(value=high, op="", args=())}):
            return [f"--sweep {shlex.quote(f'{one.option}={text}')}"]
    return []


def _span(parameter: Parameter, low: float, high: float, unit: Unit) -> str:
    if parameter.kind is Kind.COUNT:
        low, high = float(max(1, round(low))), float(max(1, round(high)))
        return f"{low:g}:{high:g}:x2" if low >= 1 else f"{low:g}:{high:g}"
    return f"{written(low, unit)}:{written(high, unit)}"


def written(value: float, unit: Unit) -> str:
    """A number as a person would type it: `2k`, `40GB`, `0.5`."""
    if unit.dimension == _TOKEN:
        whole = round(value / unit.factor)
        for size, letter in _LETTERS:
            if whole >= size:
                return f"{float(f'{whole / size:.3g}'):g}{letter}"
        return f"{whole // _K}k" if whole and whole % _K == 0 else f"{whole}"
    symbol = unit.symbol if unit.dimension or unit.symbol == "%" else ""
    gap = " " if " " in symbol else ""
    return f"{float(f'{value / unit.factor:.3g}'):g}{gap}{symbol}"


def _set(asked: Asked) -> list[str]:
    """A choice that changes the answer."""
    for one in asked.topic.parameters.values():
        if one.kind is Kind.CHOICE and one.name not in asked.given:
            for option in sorted(one.options, key=lambda word: word not in _USUAL):
                if option != asked.inputs[one.name] and _works(asked, {one.name: option}):
                    return [f"--set {one.name}={option}"]
    return []


def _works(asked: Asked, change: dict[str, Any]) -> bool:
    """Whether the topic answers with the change, and says something else."""
    try:
        other = ask(asked.topic.name, {**asked.given, **change}, asked.overrides)
    except RidgelineError:
        return False
    return results(other) != results(asked)
