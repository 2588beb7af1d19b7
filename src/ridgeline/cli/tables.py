"""Tables that can be read at 80 columns and in a pipe.

In a pipe each row is one line, however long, so that `grep` and `cut` see all of it. In a terminal
where such lines do not fit, a row takes two: its beginning, and below it the rest.
"""

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: A pipe's width: wide enough that nothing is ever wrapped.
_NO_EDGE = 1_000_000
_GAP, _INDENT = "  ", "    "

Row = Sequence[str]


def console() -> Console:
    """Where answers are printed: wrapped to a terminal's width, and in a pipe never."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_NO_EDGE)


def print_table(
    out: Console, headings: Row, rows: Sequence[Row], *, first: int, right: bool = False
) -> None:
    """Rows under their headings; where they do not fit, `first` columns stand above the others.

    The others are numbers, set to the right, or else words, which are wrapped between words.
    """
    table = [headings, *rows]
    lines = _aligned(table, right_from=first if right else len(headings))
    if max(map(cell_len, lines)) > out.width:
        lines = _in_two(table, first, out.width, right=right)
    for line in lines:
        out.print(Text(line), soft_wrap=True)


def _in_two(table: Sequence[Row], first: int, width: int, *, right: bool) -> list[str]:
    above = _aligned([row[:first] for row in table], right_from=first)
    rest = [row[first:] for row in table]
    below = _aligned(rest, right_from=0) if right else ["; ".join(row) for row in rest]
    lines = []
    for upper, lower in zip(above, below, strict=True):
        lines += [*_wrapped(upper, "", width), *_wrapped(lower, _INDENT, width)]
    return lines


def _wrapped(line: str, indent: str, width: int) -> list[str]:
    """Broken between words only: a name that is longer than the line stays whole."""
    if cell_len(indent + line) <= width:
        return [indent + line]
    return textwrap.wrap(
        line,
        width,
        initial_indent=indent,
        subsequent_indent=indent or _GAP,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _aligned(table: Sequence[Row], *, right_from: int) -> list[str]:
    """Each row as a line, its columns below each other; from `right_from` on to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = []
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if at >= right_from else cell + space)
        lines.append(_GAP.join(cells).rstrip())
    return lines
