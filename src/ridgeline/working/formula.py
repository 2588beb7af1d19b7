"""One step of a derivation as a line of arithmetic: `per_user_bytes = kv × context`."""

from typing import Any

from ridgeline.quantity import Quantity
from ridgeline.show import number, show

_RANK = {"if": 0, "+": 1, "-": 1, "*": 2, "/": 2, "**": 3}
_SIGN = {"*": "×", "**": "^"}
_TIGHT = 4


def short(name: str) -> str:
    """A step's name within a formula: of a catalog's value only the field."""
    return name.rsplit(".", 1)[-1]


def formula(step: Quantity) -> str:
    """How the step was computed, from the steps that have names; empty for an input."""
    return _written(step, named=False)[0] if step.op else ""


def _written(term: Any, *, named: bool = True) -> tuple[str, int]:
    """A term and how tightly it binds."""
    if not isinstance(term, Quantity):
        return number(float(term)), _TIGHT
    if named and term.name:
        return short(term.name), _TIGHT
    if not term.op:
        return show(term), _TIGHT
    if term.op in _RANK and term.op != "if":
        return _infix(term)
    if term.op == "is":
        return _written(term.args[0])
    if term.op == "if":
        yes, no = (_written(arg)[0] for arg in term.args)
        return f"{yes} if {term.labels[0]}, else {no}", 0
    inside = ", ".join(_written(arg)[0] for arg in term.args)
    return f"{term.op}({inside})", _TIGHT


def _infix(term: Quantity) -> tuple[str, int]:
    rank = _RANK[term.op]
    left, right = term.args
    if term.op == "-" and not isinstance(left, Quantity) and left == 0:
        return f"-{_inside(right, rank + 1)}", rank
    strict = rank + (term.op in ("-", "/"))
    sign = _SIGN.get(term.op, term.op)
    gap = "" if term.op == "**" else " "
    return f"{_inside(left, rank)}{gap}{sign}{gap}{_inside(right, strict)}", rank


def _inside(term: Any, rank: int) -> str:
    text, binds = _written(term)
    return text if binds >= rank else f"({text})"


def steps(step: Quantity) -> list[Quantity]:
    """The named steps and inputs that its formula shows, each once, from left to right."""
    found: dict[int, Quantity] = {}
    waiting = list(step.inputs)
    while waiting:
        one = waiting.pop(0)
        if one.name:
            found.setdefault(id(one), one)
        else:
            waiting[:0] = one.inputs
    by_name: dict[tuple[str, str], Quantity] = {}
    for one in found.values():
        by_name.setdefault((one.name, repr(one.value)), one)
    return list(by_name.values())


def bound(step: Quantity) -> str:
    """Which option of a `max`, `min` or `if` the value is; empty for any other step."""
    chooser = step
    while chooser.op == "is":
        chooser = chooser.args[0]
    if chooser.op not in ("max", "min", "if"):
        return ""
    chosen = chooser.chosen
    if getattr(chosen, "ndim", 0) > 0:
        names = dict.fromkeys(chooser.labels[int(index)] for index in chosen.flat)
        return " then ".join(names)
    return chooser.labels[int(chosen)]
