"""A sweep as text."""

import re

from ridgeline.show import show
from ridgeline.working.formula import short
from ridgeline.working.lines import WIDTH, Line, columns, wrapped
from ridgeline.working.sweep import Sweep

_MOST_ROWS = 25
_MOST_COLUMNS = 4
_REMARK = 30


def sweep_lines(found: Sweep, width: int = WIDTH) -> list[Line]:
    """The points in a table; where the knee is and what binds stands in its last column."""
    shown = [index for index in _rows(found) if index not in found.refused]
    remarks = [_remark(found, index) for index in shown]
    names = _names(found, width - (_REMARK if any(remarks) else 0))
    head = [short(found.target.name), *names, ""]
    cells = [
        [found.point(i), *(_cell(found, name, i) for name in names), remark]
        for i, remark in zip(shown, remarks, strict=True)
    ]
    text = [not found.target.is_number, *(False for _ in names), True]
    lines = wrapped(_headline(found), width, "  ", "bold", first="")
    lines += columns(head, cells, width, text=text)
    lines += wrapped(_objective(found), width, "  ", first="  ")
    still = [name for name in found.columns if name not in names and not _moves(found, name)]
    if still:
        told = ", ".join(f"{name} stays {_value(found, name, shown[0])}" for name in still)
        lines += wrapped(f"{told}.", width, "  ", "dim")
    lines += [
        line
        for told in _refusals(found)
        for line in wrapped(told, width, "    ", "yellow", first="  ")
    ]
    if len(shown) < len(found.points) - len(found.refused):
        told = f"{len(shown)} of {len(found.points)} points; --json has all of them."
        lines.append([(f"  {told}", "dim")])
    return lines


def _refusals(found: Sweep) -> list[str]:
    """What the topic refused and why; of reasons that only differ by the number, the first."""
    points: dict[str, list[int]] = {}
    for index, reason in found.refused.items():
        points.setdefault(re.sub(r"[0-9][0-9.,]*", "#", reason), []).append(index)
    told = []
    for indices in points.values():
        first = f"Refused: {found.point(indices[0])}: {found.refused[indices[0]]}"
        others = ", ".join(found.point(index) for index in indices[1:_MOST_ROWS])
        told.append(f"{first}. Likewise {others}." if others else f"{first}.")
    return told


def _moves(found: Sweep, name: str) -> bool:
    values = [value for value in found.columns[name].values if value == value]
    return len(values) < len(found.points) - len(found.refused) or len(set(values)) > 1


def _names(found: Sweep, width: int) -> list[str]:
    """The values that get a column: the headline, and others that change, while there is room."""
    kept = [found.headline, *([found.versus] if found.versus else [])]
    used = 4 + max(len(found.point(i)) for i in range(len(found.points)))
    used += sum(_wide(found, name) for name in kept)
    for name in [name for name in found.columns if name not in kept]:
        used += _wide(found, name)
        if used > width or len(kept) == _MOST_COLUMNS:
            break
        if _moves(found, name):
            kept.append(name)
    return kept


def _wide(found: Sweep, name: str) -> int:
    cells = [_cell(found, name, index) for index in range(len(found.points))]
    words = [len(word) + 1 for word in name.split("_")]
    return 2 + max(len(cell) for cell in cells) if cells else max(words)


def _headline(found: Sweep) -> str:
    name, bend = found.headline, found.knee
    over = f"{name} over {found.versus or short(found.target.name)}"
    if not found.target.is_number:
        told = _extremes(found)
    elif bend.index is not None:
        at = f"{found.point(bend.index)}, where it is {_value(found, name, bend.index)}"
        told = f"{over}: the knee is at {at}"
    elif bend.turn is not None:
        at = f"{_value(found, name, bend.turn)} at {found.point(bend.turn)}"
        told = f"{over}: no knee, {bend.reason.replace('here', at)}"
    else:
        told = f"{over}: no knee, {bend.reason}"
    changes = len(found.changes)
    times = {1: "once", 2: "twice"}.get(changes, f"{changes} times")
    if not any(found.binds):
        return f"{told}."
    return f"{told}; {f'what binds changes {times}' if changes else 'the same binds throughout'}."


def _objective(found: Sweep) -> str:
    """Which points keep the objective."""
    if found.slo is None:
        return ""
    told = f"{found.slo.name} is at most {show(found.slo.most)}"
    if found.slo.last is None:
        return f"{told} at no point before one that breaks it."
    if found.slo.last == len(found.points) - 1:
        return f"{told} at every point."
    return f"{told} up to {found.point(found.slo.last)}."


def _extremes(found: Sweep) -> str:
    """Over words there is no knee, but a most and a least."""
    name, values = found.headline, found.columns[found.headline].values
    here = [index for index in range(len(values)) if index not in found.refused]
    most, least = (pick(here, key=lambda i: values[i]) for pick in (max, min))
    told = f"{name} over {short(found.target.name)}: "
    if values[most] == values[least]:
        return f"{told}{_value(found, name, most)} throughout"
    ends = [f"{_value(found, name, i)} at {found.point(i)}" for i in (most, least)]
    return f"{told}most is {ends[0]}, least {ends[1]}"


def _value(found: Sweep, name: str, index: int) -> str:
    return show(found.columns[name].at(index))


def _cell(found: Sweep, name: str, index: int) -> str:
    value = found.columns[name].values[index]
    return "" if value != value else _value(found, name, index)


def _remark(found: Sweep, index: int) -> str:
    marks = []
    if index == found.knee.index:
        marks.append("knee")
    if index == found.knee.turn:
        marks.append(found.knee.reason.split(", ")[-1].removesuffix(" here"))
    if found.slo is not None and index == found.slo.last:
        marks.append("last within the objective")
    if index in found.changes:
        marks.append(f"from here {found.changes[index]}")
    return ", ".join(marks)


def _rows(found: Sweep) -> list[int]:
    """All points where they are few, else some at even distances and all that have a mark."""
    every = range(len(found.points))
    if len(every) <= _MOST_ROWS:
        return list(every)
    step = -(-len(every) // 16)
    kept = {*every[::step], every[-1], *found.changes}
    marked = (found.knee.index, found.knee.turn, found.slo.last if found.slo else None)
    kept |= {index for index in marked if index is not None}
    return sorted(kept)[: 4 * _MOST_ROWS]
