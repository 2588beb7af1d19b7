"""What would change in a platform that runs, were another spec of it to hold. Pure.

Two platforms in, a list of changes out, each with how it comes about and a sentence that says so.
`ridgeline diff` prints them; `ridgeline reload` makes them true, all of them or none:

    in place            limits, prices, routing, bounds of scaling: nothing stops
    starts, drains      models that came and went; running answers finish
    needs a rollout     another version of a model: refused, since nobody would look whether it
                        is worse
    needs a restart     what a running process cannot change, e.g. where it listens: refused

Models and tenants are known by their names, so their order in the file means nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from ridgeline.serving.control.versions import Version, version_of
from ridgeline.spec import Platform

#: Of a platform: lists whose parts are known by their names.
_NAMED = ("models", "tenants")


class How(StrEnum):
    """How a change comes about."""

    IN_PLACE = "in place"
    STARTS = "starts"
    DRAINS = "drains"
    ROLLOUT = "needs a rollout"
    RESTART = "needs a restart"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs. `path` has names where the file has places in a list.

    `was` and `now` are as JSON has them; None where a model or tenant is not there. `remedy` is
    what to type in place of a reload, where it is refused.
    """

    path: tuple[str, ...]
    was: Any
    now: Any
    how: How
    said: str
    remedy: str = ""

    @property
    def where(self) -> str:
        """The place as a reader of the file calls it: `models[chat].replicas.max`."""
        first, *rest = self.path
        if first in _NAMED:
            first, *rest = f"{first}[{rest[0]}]", *rest[1:]
        return ".".join([first, *rest])

    @property
    def is_refused(self) -> bool:
        """Whether a reload cannot do it."""
        return self.how in (How.ROLLOUT, How.RESTART)

    def told(self) -> dict[str, Any]:
        """As plain values, for other programs."""
        return {
            "where": self.where,
            "how": self.how.value,
            "was": self.was,
            "now": self.now,
            "said": self.said,
            "remedy": self.remedy,
        }


def diff(was: Platform, now: Platform, *, spec: str = "SPEC") -> list[Change]:
    """What differs; nothing where both say the same. `spec` is the file that remedies name."""
    found = [
        _change(path, before, after, spec)
        for path, before, after in _differences(_by_name(was), _by_name(now), ())
    ]
    return _with_remedies(found, spec)


def applied(platform: Platform, changes: Iterable[Change]) -> Platform:
    """The platform with these changes made."""
    told = _by_name(platform)
    for change in changes:
        *steps, last = change.path
        place = told
        for step in steps:
            place = place[step]
        if change.now is None and _is_whole(change.path):
            del place[last]
        else:
            place[last] = change.now
    return Platform.model_validate({**told, **{key: list(told[key].values()) for key in _NAMED}})


def as_it_runs(written: Platform, wanted: Platform, live: Mapping[str, Version]) -> Platform:
    """The platform of its file, with each model in the version that it runs now.

    After a rollout a model runs another version than the file names. Whether the file still names
    the old one or has caught up, nothing of the model is to change: so a version counts as it runs
    where `wanted` names it too, else as `written` has it.
    """
    named = {model.name: model for model in wanted.models}
    models = []
    for model in written.models:
        runs, wants = live.get(model.name), named.get(model.name)
        if runs is not None and wants is not None and version_of(wants).id == runs.id:
            model = runs.applied(model)
        models.append(model)
    return written.model_copy(update={"models": models})


def _by_name(platform: Platform) -> dict[str, Any]:
    told = platform.model_dump(mode="json")
    return {**told, **{key: {one["name"]: one for one in told[key]} for key in _NAMED}}


def _is_whole(path: tuple[str, ...]) -> bool:
    """Whether it is a model or a tenant itself, not a part of one."""
    return len(path) == 2 and path[0] in _NAMED


def _differences(
    was: Any, now: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Each smallest part that differs, with what it was and is."""
    if was == now:
        return
    parts = isinstance(was, dict) and isinstance(now, dict)
    if path and path[0] in _NAMED and len(path) == 1:
        for name in [*was, *(name for name in now if name not in was)]:
            yield from _differences(was.get(name), now.get(name), (*path, name))
    elif parts and was.keys() == now.keys() and was.get("kind") == now.get("kind"):
        for key in was:
            yield from _differences(was[key], now[key], (*path, key))
    else:
        yield path, was, now


def _change(path: tuple[str, ...], was: Any, now: Any, spec: str) -> Change:
    match path:
        case ("models", name):
            return _model(path, name, was, now)
        case ("models", name, *part):
            return _of_model(path, name, part, was, now, spec)
        case ("tenants", name):
            return _tenant(path, name, was, now, spec)
        case ("tenants", name, *part):
            said = f"{name}: {'.'.join(part)} {_moved(was, now)}, for its requests within a second"
            return Change(path, was, now, How.IN_PLACE, said)
    said = f"{'.'.join(path)} {_moved(was, now)}: the running process keeps what it began with"
    remedy = f"ridgeline down, then ridgeline up {spec}"
    return Change(path, was, now, How.RESTART, said, remedy)


def _model(path: tuple[str, ...], name: str, was: Any, now: Any) -> Change:
    if now is None:
        said = f"{name} drains: running answers finish, then it is gone"
        return Change(path, was, now, How.DRAINS, said)
    if now["engine"]["kind"] == "url":
        count = len(now["engine"]["urls"])
        said = f"{name} joins, {_plural(count, 'server')} that run already"
    else:
        least, most = now["replicas"]["min"], now["replicas"]["max"]
        up_to = f", up to {most}" if most and most > least else ""
        said = f"{name} starts with {_plural(least, 'replica')}{up_to}"
    return Change(path, was, now, How.STARTS, said)


def _tenant(path: tuple[str, ...], name: str, was: Any, now: Any, spec: str) -> Change:
    if now is None:
        said = f"{name} is disabled: its keys are refused within a second, its usage is kept"
    else:
        said = f"{name} may ask, once it has a key: ridgeline keys create {name} {spec}"
    return Change(path, was, now, How.IN_PLACE, said)


#: What a part of a model's spec holds for, once it has changed; the first that fits.
_HOLDS = (
    (("replicas", "slots"), "for requests from now on"),
    (("replicas", "usd_per_hour"), "from this minute on"),
    (("replicas",), "at the autoscaler's next look"),
    (("routing",), "for the next request"),
    (("simulated",), "for simulations only"),
    (("on",), "for simulations only"),
    (("slo",), "for simulations only"),
    (("price",), "for answers that end from now on"),
    (("max_output_tokens",), "for requests from now on"),
)


def _of_model(
    path: tuple[str, ...], name: str, part: list[str], was: Any, now: Any, spec: str
) -> Change:
    shown = f"{name}: {'.'.join(part)} {_moved(was, now)}"
    for place, holds in _HOLDS:
        if tuple(part[: len(place)]) == place:
            return Change(path, was, now, How.IN_PLACE, f"{shown}, {holds}")
    if part == ["engine"]:  # of another kind
        said = f"{name}: {was['kind']} becomes {now['kind']}, another kind of engine"
        remedy = f"give it another name, or ridgeline down and ridgeline up {spec}"
        return Change(path, was, now, How.RESTART, said, remedy)
    if part[-1] in ("urls", "api_key_env"):
        return Change(path, was, now, How.IN_PLACE, _servers(name, part[-1], was, now))
    said = f"{shown}: another version, which only a rollout watches and takes back"
    return Change(path, was, now, How.ROLLOUT, said)


def _servers(name: str, key: str, was: Any, now: Any) -> str:
    if key != "urls":
        return f"{name}: its servers are asked with the key in {now}, those of before drain"
    came = [url for url in now if url not in was]
    gone = [url for url in was if url not in now]
    parts = [
        f"{', '.join(came)} joins" if came else "",
        f"{', '.join(gone)} drains" if gone else "",
    ]
    return f"{name}: {'; '.join(filter(None, parts)) or 'its servers in another order'}"


def _with_remedies(changes: list[Change], spec: str) -> list[Change]:
    """A model goes to its new version in one rollout, however many settings differ."""
    wanted: dict[str, list[str]] = {}
    for change in changes:
        if change.how is How.ROLLOUT:
            wanted.setdefault(change.path[1], []).append(_option(change))
    told = {
        name: f"put the old version back into {spec}, then: ridgeline rollout start {name} {spec} "
        + " ".join(options)
        for name, options in wanted.items()
    }
    return [
        Change(one.path, one.was, one.now, one.how, one.said, told[one.path[1]])
        if one.how is How.ROLLOUT
        else one
        for one in changes
    ]


def _option(change: Change) -> str:
    """What `ridgeline rollout start` is told of it."""
    if change.path[2] == "model":
        return f"--to {change.now}"
    return f"--engine {change.path[-1]}={_shown(change.now)}"


def _moved(was: Any, now: Any) -> str:
    return f"{_shown(was)} becomes {_shown(now)}"


def _shown(value: Any) -> str:
    """A value as the file would have it, on one line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return str(yaml.safe_dump(value, default_flow_style=True, width=10**6)).strip()
    return str(value)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
