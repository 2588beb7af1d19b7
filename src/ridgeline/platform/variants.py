"""One spec with another value at a key: what `ridgeline simulate --compare KEY=a,b` compares.

A key is a path with dots, as complaints about a spec have it: `models.chat.routing.policy`. Parts
of a list are known by their names or numbers. A key that begins with a field of a model, as
`replicas.max`, is of the model that is asked. Values are read as the spec's own are.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ridgeline.errors import SpecError
from ridgeline.serving.spec import ModelSpec
from ridgeline.spec import Loader, Platform, checked, load

_WHERE = "--compare"
_REMEDY = "KEY=a,b, as routing.policy=least-load,prefix-sticky or replicas.max=2,4"


@dataclass(frozen=True, slots=True)
class Variant:
    """A platform, and what it is called beside the others."""

    name: str
    platform: Platform


def variants(path: Path, text: str, model: str) -> list[Variant]:
    """The spec of a file with each of the values of `KEY=a,b`; SpecError where that is no spec."""
    key, values = _read(text)
    load(path)  # its own complaints come first
    data = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 - it is a SafeLoader
    return [
        Variant(
            shown, checked(_with(data, key, value, model), name=f"{path.name} with {key}={shown}")
        )
        for shown, value in values
    ]


def _read(text: str) -> tuple[str, list[tuple[str, Any]]]:
    key, _, listed = text.partition("=")
    shown = [one.strip() for one in _split(listed)]
    if not key.strip() or len(shown) < 2 or "" in shown or len(set(shown)) < len(shown):
        raise SpecError(f"{text!r} are no two values of a key", where=_WHERE, remedy=_REMEDY)
    try:
        return key.strip(), [(one, yaml.load(one, Loader)) for one in shown]  # noqa: S506 - as above
    except yaml.YAMLError as error:
        raise SpecError(f"{text!r}: a value is not YAML", where=_WHERE, remedy=_REMEDY) from error


def _split(text: str) -> Sequence[str]:
    """At commas that are in no bracket: `{by: 1, every: 10s},{by: 2}` are two."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _with(data: dict[str, Any], key: str, value: Any, model: str) -> dict[str, Any]:
    steps = key.split(".")
    if steps[0] in ModelSpec.model_fields and steps[0] not in Platform.model_fields:
        steps = ["models", model, *steps]
    changed = deepcopy(data)
    place: Any = changed
    for done, step in enumerate(steps[:-1]):
        place = _inner(place, step, ".".join(steps[: done + 1]))
    last = steps[-1]
    if isinstance(place, list):
        place[_number(place, last, key)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise SpecError(f"{key}: there are no keys at this place", where=_WHERE, remedy=_REMEDY)
    return changed


def _inner(place: Any, step: str, sofar: str) -> Any:
    """One step down; a mapping that the file leaves out begins empty."""
    if isinstance(place, list):
        return place[_number(place, step, sofar)]
    if not isinstance(place, dict):
        raise SpecError(f"{sofar}: there are no keys at this place", where=_WHERE, remedy=_REMEDY)
    if place.get(step) is None:
        place[step] = {}
    return place[step]


def _number(parts: list[Any], step: str, sofar: str) -> int:
    names = [one.get("name") if isinstance(one, dict) else None for one in parts]
    if step in names:
        return names.index(step)
    if step.isdecimal() and int(step) < len(parts):
        return int(step)
    known = ", ".join(str(name) for name in names if name is not None)
    raise SpecError(f"{sofar}: there is no {step!r}", where=_WHERE, remedy=f"one of: {known}")
