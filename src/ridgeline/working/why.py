"""The derivation of a number as a tree of text: formulas, values, sources, and what bound."""

from ridgeline.quantity import Provenance, Quantity
from ridgeline.show import show
from ridgeline.working.formula import bound, formula, short, steps

_WIDTH = 100


def why(step: Quantity, name: str = "") -> list[str]:
    """Lines of a tree: the step, then what it was computed from, down to the inputs.

    `name` is what the answer calls it. A step that was shown before is only named again.
    """
    lines: list[str] = []
    _grow(step, name or short(step.name) or "answer", "", "", lines, set())
    return lines


def _grow(
    step: Quantity, name: str, lead: str, stem: str, lines: list[str], seen: set[tuple[str, str]]
) -> None:
    key = (step.name or name, repr(step.value))
    again = key in seen and bool(step.op)
    seen.add(key)
    left = f"{lead}{name}" + (f" = {formula(step)}" if step.op and not again else "")
    lines.append(_row(left, show(step) + (" (above)" if again else "")))
    if again:
        return
    below = steps(step)
    lines += [f"{stem}{'│  ' if below else '   '}{remark}" for remark in _remarks(step)]
    for index, one in enumerate(below):
        last = index == len(below) - 1
        _grow(
            one,
            short(one.name),
            stem + ("└─ " if last else "├─ "),
            stem + ("   " if last else "│  "),
            lines,
            seen,
        )


def _row(left: str, right: str) -> str:
    gap = max(2, _WIDTH - len(left) - len(right))
    return f"{left}{' ' * gap}{right}"


def _remarks(step: Quantity) -> list[str]:
    found = []
    if binding := bound(step):
        found.append(f"binds: {binding}")
    if step.op and step.source:
        found.append(f"law: {step.source}")
    if not step.op:
        kind = "" if step.provenance is Provenance.GIVEN else f"{step.provenance}: "
        if step.source:
            found.append(f"{kind}{step.source}")
    if step.note:
        found.append(step.note)
    return found
