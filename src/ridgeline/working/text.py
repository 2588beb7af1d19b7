"""An answer as text: the sentence first, its numbers, what binds, what to know, what to ask next.

80 columns fit, units always stand beside numbers, and nothing is printed that was not computed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ridgeline.quantity import Provenance, Quantity
from ridgeline.show import show
from ridgeline.topics import Asked, Topic
from ridgeline.working.binding import Choice, choices
from ridgeline.working.formula import decided, formula, short
from ridgeline.working.lines import WIDTH, Line, columns, wrapped
from ridgeline.working.matters import unused

_LEAST_GIST = 12
_MOST_BINDING = 2
#: Where the constants of laws come from: a bound such as "not below 0".
_BOUNDS = (Provenance.ASSUMED, Provenance.DEFINED)


def said(asked: Asked) -> str:
    """The answer's sentence."""
    shown = {name: worded(value) for name, value in asked.inputs.items()}
    shown |= {name: show(value) for name, value in asked.answer.values.items()}
    return asked.answer.says.format_map(shown)


def worded(value: Any) -> str:
    """An input as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(worded(one) for one in value)
    return show(value) if isinstance(value, Quantity) else getattr(value, "name", str(value))


def answer_lines(asked: Asked, width: int = WIDTH, *, following: str = "") -> list[Line]:
    """The whole answer; `following` is the line that says what can be asked next."""
    lines = headline(asked, width)
    lines += _values(asked, width)
    lines += _binding(asked, width)
    if asked.answer.table:
        lines += [[], *table_lines(asked.answer.table, width), []]
    notes = [*asked.answer.notes]
    lines += [line for note in notes for line in wrapped(note, width, "  ", first="")]
    lines += remark_lines(asked, width)
    for told in unused(asked):
        lines += wrapped(told, width, "  ", "yellow", first="")
    if lines[-1] == []:
        lines.pop()
    if following:
        lines += wrapped(following, width, "  ", "dim", first="")
    return lines


def headline(asked: Asked, width: int = WIDTH) -> list[Line]:
    """The sentence, and which model and accelerator it is about."""
    return wrapped(said(asked), width, "  ", "bold", first="") + about_lines(asked, width)


def about_lines(asked: Asked, width: int) -> list[Line]:
    """`Llama 3.1 70B on H100 SXM5 80 GB`: what was taken for the names that were given."""
    return wrapped(asked.about, width, "    ", "dim", first="  ") if asked.about else []


def remark_lines(asked: Asked, width: int) -> list[Line]:
    """What is to be said of what was given."""
    return [line for one in asked.remarks for line in wrapped(one, width, "  ", "yellow", first="")]


def _values(asked: Asked, width: int) -> list[Line]:
    values = asked.answer.values
    names = max(len(name) for name in values)
    numbers = max(len(show(value)) for value in values.values())
    lines: list[Line] = []
    for name, value in values.items():
        left = f"  {name.ljust(names)}  "
        lines.append(_value_row(left, show(value).rjust(numbers), value, width))
    return lines


def _value_row(left: str, number: str, value: Quantity, width: int) -> Line:
    room = width - len(left) - len(number) - 2
    return [(left, ""), (number, "cyan"), ("  ", ""), (_gist(value, room), "dim")]


def _gist(value: Quantity, room: int) -> str:
    """The formula, or as much of it as there is room for: --why has all of it."""
    told = formula(value)
    if len(told) <= room:
        return told
    cut = told[: max(0, room - 2)].rsplit(" ", 1)[0].rstrip(" ×/+-(")
    return f"{cut} …" if cut and len(cut) > _LEAST_GIST else ""


def _binding(asked: Asked, width: int) -> list[Line]:
    """What decided the headline: each `max` or `min` on the way, with what the others would be."""
    first = next(iter(asked.answer.values.values()))
    deciding = [one for one in choices(first) if is_telling(one, asked)]
    lines: list[Line] = []
    for one in deciding[:_MOST_BINDING]:
        lines += wrapped(decided(one.step, short(one.owner)), width, "    ", "magenta", first="  ")
    return lines


def is_telling(choice: Choice, asked: Asked) -> bool:
    """Whether a `max` or `min` weighs things against each other, and does not only keep a bound."""
    if choice.step.op == "if":
        return False
    parameters = asked.topic.parameters
    weighed = [
        arg
        for arg in choice.step.args
        if isinstance(arg, Quantity)
        and not _is_nothing(arg)
        and (arg.op or arg.provenance not in _BOUNDS or arg.name in parameters)
    ]
    return len(weighed) > 1


def _is_nothing(arg: Any) -> bool:
    """A zero by construction: written so, or as a multiple 0 of something that has a unit."""
    if not isinstance(arg, Quantity):
        return bool(arg == 0)
    if arg.op == "*":
        return any(_is_nothing(one) for one in arg.args)
    return not arg.op and getattr(arg.value, "ndim", 0) == 0 and arg.value == 0


def table_lines(rows: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
    """The rows of an answer's table; what a row has no value for stays empty."""
    head = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[worded(row[key]) if key in row else "" for key in head] for row in rows]
    text = [not any(isinstance(row.get(key), Quantity) for row in rows) for key in head]
    return columns(head, cells, width, text=text)


def listing(topics: Mapping[str, Topic], width: int = WIDTH) -> list[Line]:
    """All topics by subject."""
    longest = max(len(name) for name in topics)
    lines: list[Line] = []
    subjects = dict.fromkeys(topic.subject for topic in topics.values())
    for subject in sorted(subjects):
        lines.append([(subject, "bold")])
        for topic in topics.values():
            if topic.subject == subject:
                pad = " " * (longest + 4)
                first = f"  {topic.name.ljust(longest)}  "
                lines += wrapped(topic.summary.rstrip("."), width, pad, first=first)
    return lines
