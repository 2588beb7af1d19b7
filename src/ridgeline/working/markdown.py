"""An answer as a page of Markdown: for a ticket, a review or a design document."""

from collections.abc import Iterable, Mapping, Sequence

from ridgeline.topics import Asked
from ridgeline.working.formula import formula
from ridgeline.working.lines import Line, plain
from ridgeline.working.matters import unused
from ridgeline.working.text import said, worded
from ridgeline.working.why import why


def markdown(asked: Asked, more: Mapping[str, Sequence[Line]] | None = None) -> str:
    """The sentence, the values, the notes, the inputs, and the derivation of the headline.

    `more` has further parts (a sweep, a tornado) by their titles.
    """
    parts = [f"# {asked.topic.name}", f"**{said(asked)}**", asked.about, asked.topic.summary]
    parts.append(_table(("value", "", "formula"), _values(asked)))
    if rows := asked.answer.table:
        head = list(dict.fromkeys(key for row in rows for key in row))
        parts.append(_table(head, [[worded(row.get(key, "")) for key in head] for row in rows]))
    notes = (*asked.answer.notes, *asked.remarks, *unused(asked))
    parts.append("\n".join(f"- {note}" for note in notes))
    parts += ["## Inputs", _table(("input", "value", "from"), _inputs(asked))]
    for title, lines in (more or {}).items():
        parts += [f"## {title}", _code(plain(lines))]
    name, headline = next(iter(asked.answer.values.items()))
    parts += ["## Derivation", _code(plain(why(headline, name)))]
    return "\n\n".join(part for part in parts if part)


def _values(asked: Asked) -> list[list[str]]:
    return [[f"`{name}`", worded(q), formula(q)] for name, q in asked.answer.values.items()]


def _inputs(asked: Asked) -> list[list[str]]:
    rows = [
        [f"`{name}`", worded(asked.inputs[name]), "you" if name in asked.given else "default"]
        for name in asked.topic.parameters
    ]
    return rows + [[f"`{name}`", str(value), "you"] for name, value in asked.overrides.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    return "\n".join([line(head), f"|{'---|' * len(head)}", *(line(row) for row in rows)])


def _code(text: str) -> str:
    return f"```text\n{text}\n```"
