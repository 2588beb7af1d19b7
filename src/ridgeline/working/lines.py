"""Text as lines of styled spans: plain in a pipe, in colour on a terminal, the same words in both.

Colour carries no meaning alone.
"""

import textwrap
from collections.abc import Iterable, Sequence

#: A piece of text and a style of rich (`""` for none).
Span = tuple[str, str]
Line = list[Span]

WIDTH = 80


def plain(lines: Iterable[Line]) -> str:
    """The text without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def styled(lines: Iterable[Line]) -> object:
    """The same as a `rich.text.Text`."""
    from rich.text import Text

    told = Text(no_wrap=True, overflow="ignore")
    for index, line in enumerate(lines):
        told.append("\n" if index else "")
        for text, style in line:
            told.append(text, style or None)
    return told


def length(line: Line) -> int:
    """Characters of a line."""
    return sum(len(text) for text, _ in line)


def wrapped(
    text: str, width: int, indent: str = "", style: str = "", first: str | None = None
) -> list[Line]:
    """A paragraph; `first` stands before its first line, `indent` before all others."""
    parts = textwrap.wrap(
        text,
        width,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [[(part, style)] for part in parts]


def columns(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    text: Sequence[bool],
    indent: str = "  ",
) -> list[Line]:
    """A table: words left, numbers right; a head breaks at `_`, and what is too wide goes below.

    `text` says of each column whether it holds words; only those may be wrapped.
    """
    heads = [_broken(name, [row[i] for row in rows]) for i, name in enumerate(head)]
    wide = [
        max([len(part) for part in heads[i]] + [len(row[i]) for row in rows])
        for i in range(len(head))
    ]
    spare = width - len(indent)
    wide = _narrowed(wide, _least(rows, text), spare)
    lines: list[Line] = []
    for block in _blocks(wide, spare, text):
        if lines:
            lines.append([])
        lines += _head([heads[i] for i in block], [wide[i] for i in block], text, block, indent)
        for row in rows:
            lines += _row([row[i] for i in block], [wide[i] for i in block], text, block, indent)
    return lines


def _broken(name: str, cells: Sequence[str]) -> list[str]:
    """A column's name over several lines, as wide as its cells but no word is cut."""
    room = max([len(cell) for cell in cells] + [8])
    lines = [""]
    for word in name.split("_"):
        joined = f"{lines[-1]}_{word}" if lines[-1] else word
        if len(joined) <= room or not lines[-1]:
            lines[-1] = joined
        else:
            lines[-1] += "_"
            lines.append(word)
    return lines


def _least(rows: Sequence[Sequence[str]], text: Sequence[bool]) -> list[int]:
    """How narrow columns of words may get: 16 characters, or their longest word. Numbers: 0."""
    return [
        max([16] + [len(word) for row in rows for word in row[i].split()]) if is_text else 0
        for i, is_text in enumerate(text)
    ]


def _narrowed(wide: list[int], least: Sequence[int], spare: int) -> list[int]:
    """Columns of words give way, the widest first, until the table fits."""
    wide = list(wide)
    while sum(wide) + 2 * (len(wide) - 1) > spare:
        loose = [i for i, narrow in enumerate(least) if narrow and wide[i] > narrow]
        if not loose:
            break
        wide[max(loose, key=lambda i: wide[i])] -= 1
    return wide


def _blocks(wide: list[int], spare: int, text: Sequence[bool]) -> list[list[int]]:
    """Which columns stand side by side; each block begins with the columns that name the row."""
    naming = next((i for i, is_text in enumerate(text) if not is_text), 1) or 1
    while naming > 1 and sum(wide[:naming]) + 2 * naming > spare // 2:
        naming -= 1
    first = list(range(min(naming, len(wide))))
    blocks, used = [list(first)], sum(wide[i] + 2 for i in first) - 2
    for i in range(len(first), len(wide)):
        if used + 2 + wide[i] > spare and len(blocks[-1]) > len(first):
            blocks.append(list(first))
            used = sum(wide[k] + 2 for k in first) - 2
        blocks[-1].append(i)
        used += 2 + wide[i]
    return blocks


def _head(
    heads: list[list[str]], wide: list[int], text: Sequence[bool], block: list[int], indent: str
) -> list[Line]:
    tall = max(len(parts) for parts in heads)
    padded = [[""] * (tall - len(parts)) + parts for parts in heads]
    return [
        [(indent + _joined([parts[k] for parts in padded], wide, text, block), "bold")]
        for k in range(tall)
    ]


def _row(
    cells: list[str], wide: list[int], text: Sequence[bool], block: list[int], indent: str
) -> list[Line]:
    parts = [
        textwrap.wrap(cell, max(1, w), break_on_hyphens=False) or [""] if text[i] else [cell]
        for cell, w, i in zip(cells, wide, block, strict=True)
    ]
    tall = max(len(part) for part in parts)
    return [
        [(indent + _joined([(p[k] if k < len(p) else "") for p in parts], wide, text, block), "")]
        for k in range(tall)
    ]


def _joined(cells: list[str], wide: list[int], text: Sequence[bool], block: list[int]) -> str:
    return "  ".join(
        cell.ljust(w) if text[i] else cell.rjust(w)
        for cell, w, i in zip(cells, wide, block, strict=True)
    ).rstrip()
