"""`--fault` and `--change` of `ridgeline simulate`: what goes wrong, and which version is next."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import SpecError

if TYPE_CHECKING:
    from ridgeline.serving.policy.rolling import Rolling
    from ridgeline.serving.policy.rollout import Plan
    from ridgeline.serving.simulate.setup import Fault, Serving

_FAULTS = (
    "dies,at=30 or slow,at=30,for=60,factor=3 or silent,at=30,for=60, of replica number=0 of "
    "kind=MODEL; or lost,region=eu,at=30,for=60"
)
_CHANGES = (
    "rollout,to=NEW.yaml,at=60,steps=0.05/0.25/0.5,keep=600 or "
    "rolling,to=NEW.yaml,at=60,surge=0.25,unavailable=0.25,deadline=600"
)


def fault(text: str, model: str) -> "Fault":
    """One of `--fault`: what, then KEY=VALUE; `model` where no kind is named. SpecError."""
    from ridgeline.serving.simulate.setup import Fault, Trouble

    kind, given = _parts(text, "--fault", _FAULTS)
    if kind not in set(Trouble):
        raise SpecError(f"{text!r} is no fault", where="--fault", remedy=_FAULTS)
    trouble = Trouble(kind)
    known = {"at", "for"} | {
        Trouble.DIES: {"number", "kind"},
        Trouble.SLOW: {"number", "kind", "factor"},
        Trouble.SILENT: {"number", "kind"},
        Trouble.LOST: {"region"},
    }[trouble]
    _only(given, known, text, "--fault", _FAULTS)
    if (trouble is Trouble.LOST) != ("region" in given):
        raise SpecError(f"{text!r}: a region is lost", where="--fault", remedy=_FAULTS)
    numbers = {key: _number(given[key], text, "--fault") for key in given if key in _NUMBERS}
    if (trouble is Trouble.SLOW) != ("factor" in given) or numbers.get("factor", 1.0) <= 0:
        raise SpecError(f"{text!r}: a factor is of a slow one", where="--fault", remedy=_FAULTS)
    return Fault(
        numbers.get("at", 0.0),
        trouble,
        given.get("kind", model),
        int(numbers.get("number", 0)),
        numbers.get("for", 0.0),
        numbers.get("factor", 1.0),
        given.get("region", ""),
    )


def changed(serving: "Serving", texts: Iterable[str], model: str) -> "Serving":
    """With each of `--change`: the model of another spec takes the place of this one's."""
    for text in texts:
        serving = _changed(serving, text, model)
    return serving


def _changed(serving: "Serving", text: str, model: str) -> "Serving":
    from ridgeline.platform.simulated import serving_of
    from ridgeline.serving.simulate.setup import Change
    from ridgeline.spec import load

    kind, given = _parts(text, "--change", _CHANGES)
    how = _how(kind, given, text)
    if "to" not in given:
        raise SpecError(f"{text!r} names no new spec", where="--change", remedy=_CHANGES)
    path = Path(given["to"])
    found = [one for one in serving_of(load(path)).models if one.name == model]
    if not found:
        raise SpecError(f"has no model {model!r}", where=f"--change {path}", remedy="add it")
    (new,) = found
    if new.place.pool and new.place.pool not in serving.pools:
        raise SpecError(
            f"{model} is on {new.place.pool!r}, which the first spec has not",
            where=f"--change {path}",
            remedy=f"one of: {', '.join(serving.pools)}",
        )
    new = replace(new, name=f"{model}-new", serves=model, replicas=0)
    change = Change(_number(given.get("at", "0"), text, "--change"), model, new.name, how)
    return replace(serving, models=(*serving.models, new), changes=(*serving.changes, change))


def _how(kind: str, given: Mapping[str, str], text: str) -> "Plan | Rolling":
    from ridgeline.serving.policy.rolling import Rolling
    from ridgeline.serving.policy.rollout import Plan

    def number(key: str, default: float) -> float:
        return _number(given[key], text, "--change") if key in given else default

    if kind == "rolling":
        _only(given, {"to", "at", "surge", "unavailable", "deadline"}, text, "--change", _CHANGES)
        try:
            return Rolling(
                number("surge", 0.25), number("unavailable", 0.25), number("deadline", 600.0)
            )
        except ValueError as error:
            raise SpecError(f"{text!r}: {error}", where="--change", remedy=_CHANGES) from error
    if kind != "rollout":
        raise SpecError(f"{text!r} is no change", where="--change", remedy=_CHANGES)
    _only(given, {"to", "at", "steps", "keep"}, text, "--change", _CHANGES)
    steps = Plan().steps
    if "steps" in given:
        steps = tuple(_number(step, text, "--change") for step in given["steps"].split("/"))
        if not all(0 < step < 1 for step in steps) or sorted(steps) != list(steps):
            raise SpecError(
                f"{text!r}: steps are growing shares", where="--change", remedy=_CHANGES
            )
    return Plan(steps, keep_s=number("keep", Plan().keep_s))


_NUMBERS = {"at", "for", "factor", "number"}


def _parts(text: str, where: str, remedy: str) -> tuple[str, dict[str, str]]:
    kind, *parts = text.split(",")
    given: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value or key in given:
            raise SpecError(f"{part!r} of {text!r} is no KEY=VALUE", where=where, remedy=remedy)
        given[key] = value
    return kind, given


def _only(given: Mapping[str, str], known: set[str], text: str, where: str, remedy: str) -> None:
    if unknown := sorted(set(given) - known):
        raise SpecError(f"{unknown[0]!r} is no part of {text!r}", where=where, remedy=remedy)


def _number(value: str, text: str, where: str) -> float:
    """Not negative, and no infinity."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise SpecError(f"{value!r} of {text!r} is no number", where=where, remedy="0 or more")
    return number
