"""A tornado as text."""

import math

from ridgeline.show import compact, show
from ridgeline.working.formula import short
from ridgeline.working.lines import WIDTH, Line, columns, wrapped
from ridgeline.working.sensitivity import USUAL, End, Sensitivity, Swing

_MOST_SWINGS = 15
_BAR, _LEAST_BAR = 20, 6


def sensitivity_lines(found: Sensitivity, width: int = WIDTH) -> list[Line]:
    """A tornado: each input's range, the value at both ends, and a bar of their distance."""
    told = f"{found.name} is {show(found.value)}; what each input moves by {USUAL} unless said"
    lines = wrapped(told, width, "  ", "bold", first="")
    if not found.swings:
        return [*lines, [("  nothing that was varied moves it", "")]]
    rows = [_swing_cells(one) for one in found.swings[:_MOST_SWINGS]]
    used = sum(max(len(row[i]) for row in rows) for i in range(3)) + 10
    room = max(_LEAST_BAR, min(_BAR, width - used))
    largest = max([one.size for one in found.swings if math.isfinite(one.size)], default=1.0)
    cells = [
        [*row, "█" * max(1, round(room * min(1.0, one.size / largest)))]
        for row, one in zip(rows, found.swings, strict=False)
    ]
    head = ["input", "from … to", found.name, ""]
    lines += columns(head, cells, width, text=[True, False, False, True])
    more = len(found.swings) - _MOST_SWINGS
    if more > 0:
        lines.append([(f"  {more} more move it less; --json has them", "dim")])
    if found.still:
        names = ", ".join(short(name) for name in found.still)
        lines += wrapped(f"Nothing moves with {names}.", width, style="dim")
    if found.fixed:
        names = ", ".join(dict.fromkeys(short(name) for name in found.fixed))
        lines += wrapped(
            f"Not moved, for they count parts or follow from them: {names}.", width, style="dim"
        )
    return lines


def _swing_cells(one: Swing) -> list[str]:
    name = short(one.name) if one.range == USUAL else f"{short(one.name)} ({one.range})"
    inputs = _ends(compact(one.low.input), compact(one.high.input))
    return [name, inputs, _ends(_result(one.low), _result(one.high))]


def _result(end: End) -> str:
    return compact(end.result) if end.result is not None else "refused"


def _ends(low: str, high: str) -> str:
    """Two numbers; the unit once where both have the same."""
    left, _, unit = low.partition(" ")
    return f"{left} … {high}" if unit and high.endswith(f" {unit}") else f"{low} … {high}"
