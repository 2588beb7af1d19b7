"""One step of a derivation as a line of arithmetic: `per_user_bytes = kv × context`."""

from typing import Any

from ridgeline.quantity import Quantity
from ridgeline.show import number, show
from ridgeline.units import Unit

_RANK = {"if": 0, "+": 1, "-": 1, "*": 2, "/": 2, "**": 3}
_SIGN = {"*": "×", "**": "^"}
_TIGHT = 4
_DEEP = 40
_MOST_TERMS = 8


def short(name: str) -> str:
    """A step's name within a formula: of a catalog's value only the field."""
    return name.rsplit(".", 1)[-1]


def formula(step: Quantity) -> str:
    """How the step was computed, from the steps that have names; empty for an input."""
    return _written(step, 0, named=False)[0] if step.op else ""


def _written(term: Any, deep: int, *, named: bool = True) -> tuple[str, int]:
    """A term and how tightly it binds."""
    if not isinstance(term, Quantity):
        return _plain(term), _TIGHT
    if named and term.name:
        return short(term.name), _TIGHT
    if not term.op:
        return show(term), _TIGHT
    if deep > _DEEP:
        return "…", _TIGHT
    if term.op in _RANK and term.op != "if":
        return _infix(term, deep)
    if term.op == "is":
        return _written(term.args[0], deep + 1)
    if term.op == "if":
        yes, no = (_written(arg, deep + 1)[0] for arg in term.args)
        return f"{yes} if {term.labels[0]}, else {no}", 0
    inside = _elided([_written(arg, deep + 1)[0] for arg in term.args], ", ")
    return f"{term.op}({inside})", _TIGHT


def _plain(term: Any) -> str:
    if getattr(term, "ndim", 0) > 0:
        return f"{number(float(term.min()))} ... {number(float(term.max()))}"
    return number(float(term))


def _infix(term: Quantity, deep: int) -> tuple[str, int]:
    rank = _RANK[term.op]
    left, right = term.args
    if term.op == "-" and not isinstance(left, Quantity) and left == 0:
        return f"-{_inside(right, rank + 1, deep)}", rank
    if term.op in ("+", "*"):
        told = [one for one in _chain(term) if not _is_idle(one, term.op)] or _chain(term)[-1:]
        if len(told) == 1:
            return _written(told[0], deep + 1)
        terms = [_inside(one, rank, deep) for one in told]
        return _elided(terms, f" {_SIGN.get(term.op, term.op)} "), rank
    if _is_idle(right, term.op):
        return _written(left, deep + 1)
    strict = rank + (term.op in ("-", "/"))
    sign = _SIGN.get(term.op, term.op)
    gap = "" if term.op == "**" else " "
    return f"{_inside(left, rank, deep)}{gap}{sign}{gap}{_inside(right, strict, deep)}", rank


def _is_idle(term: Any, op: str) -> bool:
    """Whether an operand changes nothing and has no name to tell: `× 1`, `+ 0`."""
    if isinstance(term, Quantity):
        if term.name or term.op or term.dimension or term.unit.factor != 1:
            return False
        term = term.value
    if getattr(term, "ndim", 0) > 0:
        return False
    return bool(term == (0 if op in ("+", "-") else 1))


def _chain(term: Quantity) -> list[Any]:
    """The terms of a sum or product that was written in a row: a + b + c."""
    terms: list[Any] = [term.args[1]]
    left = term.args[0]
    while isinstance(left, Quantity) and not left.name and left.op == term.op:
        terms.append(left.args[1])
        left = left.args[0]
    return [left, *reversed(terms)]


def _elided(terms: list[str], sign: str) -> str:
    if len(terms) <= _MOST_TERMS:
        return sign.join(terms)
    shown = [*terms[: _MOST_TERMS - 2], f"… ({len(terms) - _MOST_TERMS + 1} more)", terms[-1]]
    return sign.join(shown)


def _inside(term: Any, rank: int, deep: int) -> str:
    text, binds = _written(term, deep + 1)
    return text if binds >= rank else f"({text})"


def steps(step: Quantity) -> list[Quantity]:
    """The named steps and inputs that its formula shows, each once, from left to right."""
    found: dict[int, Quantity] = {}
    waiting = list(step.inputs)[::-1]
    while waiting:
        one = waiting.pop()
        if one.name:
            found.setdefault(id(one), one)
        else:
            waiting.extend(one.inputs[::-1])
    by_name: dict[tuple[str, str], Quantity] = {}
    for one in found.values():
        by_name.setdefault((one.name, repr(one.value)), one)
    return list(by_name.values())


def chooser(step: Quantity) -> Quantity | None:
    """The `max`, `min` or `if` that the step is; None for any other step."""
    while step.op == "is":
        step = step.args[0]
    return step if step.op in ("max", "min", "if") else None


def bound(step: Quantity) -> str:
    """Which option of a `max`, `min` or `if` the value is; empty for any other step."""
    decided = chooser(step)
    if decided is None:
        return ""
    chosen = decided.chosen
    if getattr(chosen, "ndim", 0) > 0:
        names = dict.fromkeys(decided.labels[int(index)] for index in chosen.flat)
        return " then ".join(names)
    return decided.labels[int(chosen)]


def decided(step: Quantity, owner: str = "") -> str:
    """What a `max`, `min` or `if` took and what the others would be; empty for any other step."""
    one = chooser(step)
    if one is None or getattr(one.chosen, "ndim", 0) > 0:
        return f"binds: {bound(step)}" if one is not None else ""
    taken = int(one.chosen)
    spoken = [arg.unit for arg in one.args if isinstance(arg, Quantity) and arg.unit.symbol]
    values = [_value(arg, (spoken or [one.unit])[0]) for arg in one.args]
    if one.op == "if":
        held = one.labels[0] if taken == 0 else one.labels[1]
        return f"since {held}; otherwise {values[1 - taken]}"
    others = [f"{one.labels[i]} {values[i]}" for i in range(len(values)) if i != taken]
    told = f"{one.labels[taken]} binds{f' {owner}' if owner else ''}: {values[taken]}"
    return f"{told}; {_elided(others, ', ')}" if others else told


def _value(arg: Any, unit: Unit) -> str:
    """An option's value; a bare number in the unit of the others."""
    if isinstance(arg, Quantity) and (arg.unit.symbol or arg.dimension != unit.dimension):
        return show(arg)
    bare = arg.value if isinstance(arg, Quantity) else arg
    return show(Quantity(float(bare), unit))
