"""Reads catalog files: every row has a source, names have aliases, a user's file overlays ours.

`accelerators.yaml` and `models.yaml` are data of the product. A user's own file (RIDGELINE_CATALOG,
or `overlay`) has the same form; its rows replace or change ours field by field.
"""

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ridgeline.errors import CatalogError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OVERLAY: ContextVar[tuple[Mapping[str, Any], ...]] = ContextVar("overlay", default=())


def rows(kind: str) -> dict[str, dict[str, Any]]:
    """All rows of a kind (`accelerators`, `models`) by id, a user's file laid over ours."""
    found = dict(_ours(kind))
    for layer in (*_users(), *_OVERLAY.get()):
        for row in layer.get(kind, []):
            found[row["id"]] = _merged(found.get(row["id"], {}), row)
    return found


def sources(kind: str) -> Mapping[str, str]:
    """What the source keys of a file stand for."""
    found: dict[str, str] = dict(_file(kind).get("sources", {}))
    for layer in (*_users(), *_OVERLAY.get()):
        found |= layer.get("sources", {})
    return found


def row(kind: str, name: str) -> dict[str, Any]:
    """The row of that id or alias; CatalogError names the nearest where there is none."""
    table = rows(kind)
    wanted = name.lower()
    if wanted in table:
        return table[wanted]
    aliases = {alias: one for one in table.values() for alias in one.get("aliases", [])}
    if wanted in aliases:
        return aliases[wanted]
    near = difflib.get_close_matches(wanted, [*table, *aliases], n=3, cutoff=0.5)
    nearest = ", ".join(f'"{one}"' for one in near)
    raise CatalogError(
        f'"{name}" is not in the catalog of {kind}',
        where=kind.removesuffix("s"),
        remedy=f"{nearest} (nearest)" if near else f"`ridgeline catalog list {kind}`",
    )


@contextmanager
def overlay(layer: Mapping[str, Any]) -> Iterator[None]:
    """Inside, `layer` (the content of a catalog file) lies over the catalog."""
    token = _OVERLAY.set((*_OVERLAY.get(), layer))
    try:
        yield
    finally:
        _OVERLAY.reset(token)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if nested else value
    return merged


@lru_cache
def _file(kind: str) -> dict[str, Any]:
    text = resources.files("ridgeline.catalog").joinpath(f"{kind}.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506 (a safe loader)
    return loaded


@lru_cache
def _ours(kind: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in _file(kind)[kind]}


def _users() -> tuple[Mapping[str, Any], ...]:
    named = os.environ.get("RIDGELINE_CATALOG")
    return (_user_file(named),) if named else ()


@lru_cache
def _user_file(named: str) -> Mapping[str, Any]:
    try:
        loaded = yaml.load(Path(named).read_text("utf-8"), Loader=_LOADER)  # noqa: S506
    except (OSError, yaml.YAMLError) as error:
        raise CatalogError(
            f"cannot be read: {error}", where=named, remedy="a YAML file like our catalog's"
        ) from error
    if not isinstance(loaded, dict):
        raise CatalogError("is not a mapping", where=named, remedy="`models:` with rows under it")
    return loaded
