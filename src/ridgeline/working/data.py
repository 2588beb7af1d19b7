"""An answer and a tornado as plain data, complete: what JSON and other programs get.

Numbers are in base units with the unit named; `text` is the same as a person reads it. A number
that is not finite is null.
"""

import math
from typing import Any

from ridgeline.quantity import Quantity
from ridgeline.show import show, unit_for
from ridgeline.topics import Asked, Parameter
from ridgeline.units import base_symbol
from ridgeline.working.binding import active, binding, ordered, somewhere
from ridgeline.working.formula import bound, formula
from ridgeline.working.matters import unused
from ridgeline.working.sensitivity import End, Sensitivity, Swing
from ridgeline.working.text import said, worded


def as_data(asked: Asked) -> dict[str, Any]:
    """Everything that an answer knows."""
    nodes = ordered(asked.roots)
    ids = {id(step): index for index, step in enumerate(nodes)}
    masks = active(asked.roots)
    answer = asked.answer
    return {
        "topic": asked.topic.name,
        "subject": asked.topic.subject,
        "says": said(asked),
        "about": asked.about,
        "ok": answer.ok,
        "values": {name: _value(q) | {"node": ids[id(q)]} for name, q in answer.values.items()},
        "table": [{key: _cell(cell) for key, cell in row.items()} for row in answer.table],
        "notes": list(answer.notes),
        "remarks": list(asked.remarks),
        "does_not_matter": unused(asked),
        "inputs": {
            name: _input(asked, parameter) for name, parameter in asked.topic.parameters.items()
        },
        "set": {name: str(value) for name, value in asked.overrides.items()},
        "derivation": [_node(step, ids) | {"used": somewhere(masks[id(step)])} for step in nodes],
    }


def bare(value: Any) -> Any:
    """A number, or the numbers of a sweep, as JSON can hold them."""
    if getattr(value, "ndim", 0) > 0:
        return [bare(one) for one in value.tolist()]
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def measure(q: Quantity) -> dict[str, Any]:
    """A number with its unit, and as text."""
    return {
        "value": bare(q.value),
        "base_unit": base_symbol(q.dimension),
        "unit": unit_for(q).symbol,
        "text": show(q),
    }


def _value(q: Quantity) -> dict[str, Any]:
    told = measure(q) | {"formula": formula(q), "source": q.source, "note": q.note}
    return told | {"provenance": str(q.provenance), "binds": binding(q)}


def _cell(cell: Any) -> Any:
    return measure(cell) if isinstance(cell, Quantity) else cell


def _input(asked: Asked, parameter: Parameter) -> dict[str, Any]:
    value = asked.inputs[parameter.name]
    if isinstance(value, Quantity):
        told = measure(value)
    elif isinstance(value, tuple | list):
        told = {"value": [_cell(one) for one in value], "text": worded(value)}
    else:
        told = {"value": getattr(value, "id", value), "text": worded(value)}
    return told | {
        "given": parameter.name in asked.given,
        "doc": parameter.doc,
        "option": f"--{parameter.option}",
    }


def _node(step: Quantity, ids: dict[int, int]) -> dict[str, Any]:
    told = {"id": ids[id(step)], "name": step.name, "op": step.op} | measure(step)
    told |= {
        "formula": formula(step),
        "inputs": [ids[id(one)] for one in step.inputs],
        "provenance": str(step.provenance),
        "source": step.source,
        "note": step.note,
    }
    if step.labels:
        told |= {"options": list(step.labels), "binds": bound(step)}
    if step.interval is not None:
        told["interval"] = [bare(end) for end in step.interval]
    return told


def sensitivity_data(found: Sensitivity) -> dict[str, Any]:
    """All swings, largest first."""
    return {
        "value": found.name,
        "now": measure(found.value),
        "swings": [_swing(one) for one in found.swings],
        "nothing_moves_with": found.still,
        "not_moved": found.fixed,
    }


def _swing(one: Swing) -> dict[str, Any]:
    return {
        "name": one.name,
        "range": one.range,
        "low": _end(one.low),
        "high": _end(one.high),
        "swing": bare(one.size),
    }


def _end(end: End) -> dict[str, Any]:
    result = measure(end.result) if end.result is not None else None
    return {"input": measure(end.input), "result": result}
