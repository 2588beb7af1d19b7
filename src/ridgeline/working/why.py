"""The derivation of a number as a tree of text: formulas, values, origins, and what bound.

    per_user = kv_bytes_per_token × context_tokens            2.684 GB (2,684,354,560 B)
    ├─ kv_bytes_per_token = 2 × layers × kv_heads × ...       327,680 B/token [1]
    │  └─ layers 80, kv_heads 8, head_dim 128                 config of Llama 3.1 70B (catalog) [2]
    └─ context_tokens 8,192 tokens                            you

    [1] ...

A step that was shown before is named again and not repeated; long sources stand below, each once.
"""

import textwrap
from dataclasses import dataclass, field

from ridgeline.quantity import Provenance, Quantity
from ridgeline.show import exact, show
from ridgeline.topics import Asked, alike, unknown_step
from ridgeline.working.formula import decided, formula, short, steps
from ridgeline.working.lines import Line, wrapped

WIDTH = 100
_LEAST_LEFT = 48  # columns for names and formulas; values and origins stand right of them
_LONGEST_ORIGIN = 40
_MOST_BELOW = 14
_DEEPEST = 40
_KINDS = {
    Provenance.DATASHEET: "data sheet",
    Provenance.PUBLISHED: "config",
    Provenance.MEASURED: "measurement",
    Provenance.FITTED: "fit",
}


def found(asked: Asked, name: str) -> list[Quantity]:
    """The steps that a person asks for; SpecError names the nearest where there is none.

    A value of the answer comes before steps of the same name, and those behind a value before
    those that only a row of the table has.
    """
    values = asked.answer.values
    meant = name if name in values else next(iter(alike(name, list(values))), "")
    if meant:
        return [values[meant]]
    steps_found = asked.find(name)
    if not steps_found:
        raise unknown_step(name, asked, "--why")
    behind = {id(step) for value in values.values() for step in value.walk()}
    return [step for step in steps_found if id(step) in behind] or steps_found


def why(step: Quantity, name: str = "", width: int = WIDTH) -> list[Line]:
    """Lines of a tree: the step, then what it was computed from, down to the inputs.

    `name` is what the answer calls it.
    """
    tree = _Tree(width)
    tree.grow(step, name or short(step.name) or "answer", "", "", 0)
    return tree.laid_out() + tree.footnotes()


@dataclass(frozen=True, slots=True)
class _Row:
    """A name with its formula, and at the right what it is or where it comes from."""

    lead: str
    inner: str
    left: str
    right: str
    style: str

    def lines(self, column: int) -> list[Line]:
        """The row with its right side at a column; what is too long for that goes on below."""
        room = max(_LEAST_LEFT, column - 2) - len(self.lead)
        parts = textwrap.wrap(
            self.left, max(24, room), subsequent_indent="  ", break_on_hyphens=False
        )
        start = self.lead + parts[0]
        gap = " " * max(2, column - len(start))
        first: Line = [(start, ""), (gap, ""), (self.right, self.style)]
        return [first, *([(self.inner + part, "")] for part in parts[1:])]


@dataclass
class _Tree:
    """The tree while it grows."""

    width: int
    rows: list[_Row | Line] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def grow(self, step: Quantity, name: str, lead: str, stem: str, deep: int) -> None:
        """A step and all that is below it."""
        key = (step.name or name, repr(step.value))
        again = key in self.seen and bool(step.op)
        self.seen.add(key)
        below = [] if again else steps(step)
        inner = f"{stem}{'│  ' if below else '   '}"
        if not step.op:
            self._leaves([step], lead, inner, name)
            return
        right = _value(step) + (" (above)" if again else self._mark(step.source))
        self._row(lead, inner, name if again else f"{name} = {formula(step)}", right, "cyan")
        if again:
            return
        self._remarks(step, inner)
        if deep >= _DEEPEST:
            self.rows.append([(f"{inner}… deeper: --why {short(step.name)}", "dim")])
            return
        self._below(below, stem, deep)

    def _below(self, below: list[Quantity], stem: str, deep: int) -> None:
        groups = _grouped(below)
        hidden = len(groups) - _MOST_BELOW
        for index, group in enumerate(groups[:_MOST_BELOW]):
            last = index == len(groups) - 1
            lead, inner = stem + ("└─ " if last else "├─ "), stem + ("   " if last else "│  ")
            if group[0].op:
                self.grow(group[0], short(group[0].name), lead, inner, deep + 1)
            else:
                self._leaves(group, lead, inner)
        if hidden > 0:
            self.rows.append([(f"{stem}└─ … {hidden} more of this kind", "dim")])

    def _leaves(self, group: list[Quantity], lead: str, inner: str, name: str = "") -> None:
        """Inputs that have one origin, side by side."""
        told = ", ".join(f"{name or short(one.name)} {_value(one)}" for one in group)
        first = group[0]
        self._row(lead, inner, told, self._origin(first), "dim")
        if first.note and not _is_yours(first):
            self._remark(first.note, inner)

    def _row(self, lead: str, inner: str, left: str, right: str, style: str) -> None:
        self.rows.append(_Row(lead, inner, left, right, style))

    def _remarks(self, step: Quantity, inner: str) -> None:
        for told in (decided(step), step.note):
            if told:
                self._remark(told, inner)

    def _remark(self, text: str, inner: str) -> None:
        width = self.width - len(inner)
        self.rows += [[(inner, ""), *line] for line in wrapped(text, width, style="dim")]

    def _origin(self, leaf: Quantity) -> str:
        """Where an input comes from, short: the long form of a source is a footnote."""
        if _is_yours(leaf):
            return f"you, {leaf.note}" if leaf.note.startswith("instead of") else "you"
        row, _, long = leaf.source.partition(": ")
        if "." in leaf.name and long and leaf.provenance in _KINDS:
            told = f"{_KINDS[leaf.provenance]} of {row} (catalog){self._mark(leaf.source)}"
            return (
                told
                if len(told) <= self.width - _LEAST_LEFT
                else f"catalog{self._mark(leaf.source)}"
            )
        told = f"{leaf.provenance}: {leaf.source}" if leaf.source else "by definition"
        if len(told) <= _LONGEST_ORIGIN:
            return told
        return f"{leaf.provenance}{self._mark(leaf.source)}"

    def _mark(self, source: str) -> str:
        if not source:
            return ""
        return f" [{self.notes.setdefault(source, len(self.notes) + 1)}]"

    def laid_out(self) -> list[Line]:
        """All rows, their right sides in one column."""
        rows = [row for row in self.rows if isinstance(row, _Row)]
        widest = max(len(row.lead) + len(row.left) for row in rows) + 2
        column = min(widest, self.width - max(len(row.right) for row in rows))
        lines: list[Line] = []
        for row in self.rows:
            lines += row.lines(max(_LEAST_LEFT, column)) if isinstance(row, _Row) else [row]
        return lines

    def footnotes(self) -> list[Line]:
        """The sources, each once, below the tree."""
        lines: list[Line] = [[]] if self.notes else []
        for source, index in self.notes.items():
            mark = f"[{index}] "
            lines += wrapped(source, self.width, " " * len(mark), "dim", first=mark)
        return lines


def _is_yours(leaf: Quantity) -> bool:
    return leaf.provenance is Provenance.GIVEN and leaf.source == "you"


def _value(step: Quantity) -> str:
    told = exact(step)
    return f"{show(step)} ({told})" if told else show(step)


def _grouped(below: list[Quantity]) -> list[list[Quantity]]:
    """Steps one by one, and inputs of one origin together, at the place of the first."""
    groups: dict[object, list[Quantity]] = {}
    for one in below:
        alone = bool(one.op) or bool(one.note) or len(one.name) + len(_value(one)) > 40
        key = id(one) if alone else (one.provenance, one.source)
        groups.setdefault(key, []).append(one)
    return [part for group in groups.values() for part in _in_threes(group)]


def _in_threes(group: list[Quantity]) -> list[list[Quantity]]:
    return [group[i : i + 3] for i in range(0, len(group), 3)]
