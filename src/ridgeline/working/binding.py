"""Which options of `max`, `min` and `if` a number really came through: what binds.

A derivation holds the branches that lost as well. Here is told which steps the value depends on as
things stand (`active`), and which chooser decided what. In a sweep every answer is an array, one
element a point.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ridgeline.quantity import Quantity

CHOOSERS = ("max", "min", "if")


@dataclass(frozen=True, slots=True)
class Choice:
    """One chooser that had a say: the step, the named step it is part of, and where it decides."""

    step: Quantity
    owner: str
    active: Any

    @property
    def taken(self) -> str:
        """The option that the value is; of a sweep those in order of appearance."""
        chosen = self.step.chosen
        if getattr(chosen, "ndim", 0) > 0:
            return " then ".join(dict.fromkeys(self.step.labels[int(one)] for one in chosen.flat))
        return self.step.labels[int(chosen)]

    def at(self, point: int) -> str:
        """The option at one point of a sweep; empty where it does not decide."""
        if not _at(self.active, point):
            return ""
        return self.step.labels[int(_at(self.step.chosen, point))]


def _at(value: Any, point: int) -> Any:
    return value[point] if getattr(value, "ndim", 0) > 0 else value


def ordered(roots: Iterable[Quantity]) -> list[Quantity]:
    """Every step behind the roots once, each before what it was computed from."""
    done: list[Quantity] = []
    seen: set[int] = set()
    stack = [(root, False) for root in roots]
    while stack:
        step, is_left = stack.pop()
        if is_left:
            done.append(step)
        elif id(step) not in seen:
            seen.add(id(step))
            stack.append((step, True))
            stack.extend((one, False) for one in step.inputs)
    return done[::-1]


def active(roots: Iterable[Quantity]) -> dict[int, Any]:
    """By `id` of each step whether the roots depend on it, the branches that lost left out."""
    tops = list(roots)
    masks: dict[int, Any] = {id(top): True for top in tops}
    for step in ordered(tops):
        mask = masks.setdefault(id(step), False)
        for index, arg in enumerate(step.args):
            if isinstance(arg, Quantity):
                passes = mask & (step.chosen == index) if step.op in CHOOSERS else mask
                masks[id(arg)] = masks.get(id(arg), False) | passes
    return masks


def somewhere(mask: Any) -> bool:
    """Whether a mask of `active` holds at any point."""
    return bool(mask.any()) if getattr(mask, "ndim", 0) > 0 else bool(mask)


def choices(root: Quantity) -> list[Choice]:
    """The choosers that had a say in a number, nearest first."""
    masks = active([root])
    owners: dict[int, str] = {}
    found = []
    for step in ordered([root]):
        owner = step.name or owners.get(id(step), "")
        for one in step.inputs:
            owners.setdefault(id(one), owner)
        if step.op in CHOOSERS and somewhere(masks[id(step)]):
            found.append(Choice(step, owner, masks[id(step)]))
    return found


def binding(root: Quantity) -> dict[str, str]:
    """By step the option that it took, for all choosers that had a say."""
    return _keyed([(one.owner, one.taken) for one in choices(root)])


def binding_at(found: list[Choice], point: int) -> dict[str, str]:
    """The same at one point of a sweep."""
    return _keyed([(one.owner, label) for one in found if (label := one.at(point))])


def _keyed(pairs: list[tuple[str, str]]) -> dict[str, str]:
    keyed: dict[str, str] = {}
    for owner, label in pairs:
        key, count = owner, 1
        while key in keyed and keyed[key] != label:
            count += 1
            key = f"{owner} ({count})"
        keyed[key] = label
    return keyed
