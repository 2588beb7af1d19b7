"""Reads catalog files: every row has an origin, names have aliases, a user's file overlays ours.

The `.yaml` files beside this one are data of the product. A user's own file (RIDGELINE_CATALOG, or
`overlay`) has the same form; its rows replace or change ours field by field, and what they change
is said to come from there. A row without source and date, an unknown field, a value of the wrong
type and an alias that two rows claim are refused, in our files as in anyone's.
"""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ridgeline.catalog.origin import check_declared, check_sources
from ridgeline.catalog.schema import check_row, check_whole
from ridgeline.errors import CatalogError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Table = dict[str, dict[str, Any]]
Layer = tuple[str, Mapping[str, Any]]
_OVERLAY: ContextVar[tuple[Layer, ...]] = ContextVar("overlay", default=())

#: Where a merged row keeps which of its fields came from a user's file: path -> origin.
ORIGINS = "_origins"


def rows(kind: str) -> Table:
    """All rows of a kind (`accelerators`, `models`, ...) by id, a user's file laid over ours."""
    layers = _layers()
    if not layers:
        return dict(_ours(kind))
    found = dict(_ours(kind))
    for where, layer in layers:
        for row in _read(kind, layer, where):
            one = _laid_over(found.pop(row["id"], None), row, where)
            check_whole(kind, one, f"{where}, {row['id']}")
            found[row["id"]] = one  # last, so that of two with the same name the newer is blamed
    _check_names(kind, found, layers[-1][0])
    return found


def sources(kind: str) -> Mapping[str, str]:
    """What the source keys of a file stand for."""
    found: dict[str, str] = dict(_file(kind).get("sources", {}))
    for _, layer in _layers():
        found |= layer.get("sources") or {}
    return found


def is_ours(kind: str, one_id: str) -> bool:
    """Whether the product itself ships a row of that id."""
    return one_id in _ours(kind)


def row(kind: str, name: str) -> dict[str, Any]:
    """The row of that id, alias, name or hub name; CatalogError names the nearest.

    Upper and lower case are the same.
    """
    table = rows(kind)
    wanted = name.strip().lower()
    if wanted in table:
        return table[wanted]
    for names in (_declared, _implied):
        meant = [one for one in table.values() if wanted in names(one)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            ids = ", ".join(one["id"] for one in meant)
            raise CatalogError(f'"{name}" could be several', where=_singular(kind), remedy=ids)
    raise _unknown(kind, name, table)


def _unknown(kind: str, name: str, table: Table) -> CatalogError:
    known = {one["id"]: None for one in table.values()}
    known |= {alias: None for one in table.values() for alias in _declared(one)}
    near = difflib.get_close_matches(name.strip().lower(), known, n=3, cutoff=0.5)
    nearest = ", ".join(f'"{one}"' for one in near)
    return CatalogError(
        f'"{name}" is not in the catalog of {kind}',
        where=_singular(kind),
        remedy=f"{nearest} (nearest)" if near else f"`ridgeline catalog list {kind}`",
    )


@contextmanager
def overlay(layer: Mapping[str, Any], *, where: str = "overlay") -> Iterator[None]:
    """Inside, `layer` (the content of a catalog file) lies over the catalog.

    Its rows are checked now: CatalogError says file, row, field and remedy.
    """
    _check_layer(layer, where)
    token = _OVERLAY.set((*_OVERLAY.get(), (where, layer)))
    try:
        yield
    finally:
        _OVERLAY.reset(token)


def origin_of(row: Mapping[str, Any], path: str) -> str:
    """Where a user's file set this field (`memory.bytes`) or one above it; empty where none did."""
    origins: Mapping[str, str] = row.get(ORIGINS, {})
    while path:
        if path in origins:
            return origins[path]
        path = path.rpartition(".")[0]
    return ""


def dated(source: str, row: Mapping[str, Any]) -> str:
    """A source with the day it was read, said once."""
    day = str(row.get("read_on", ""))
    return source if not day or day in source else f"{source}, read {day}"


# Names.


def _declared(row: Mapping[str, Any]) -> list[str]:
    return [str(alias).lower() for alias in row.get("aliases") or ()]


def _implied(row: Mapping[str, Any]) -> set[str]:
    """Names that need no alias: what people call it, and its address on the hub."""
    hub = str(row.get("hub", "")).lower()
    return {str(row.get("name", "")).lower(), hub, hub.rpartition("/")[2]} - {""}


def _check_names(kind: str, table: Table, where: str) -> None:
    taken = {one_id: one_id for one_id in table}
    for one in table.values():
        for alias in _declared(one):
            other = taken.setdefault(alias, one["id"])
            if other != one["id"] or alias in table:
                raise CatalogError(
                    f'the alias "{alias}" is already a name of {other}',
                    where=f"{where}, {kind}, {one['id']}.aliases",
                    remedy="another alias",
                )


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


# Files.


def kinds() -> list[str]:
    """What the catalog has files for."""
    found = resources.files("ridgeline.catalog").iterdir()
    return sorted(one.name.removesuffix(".yaml") for one in found if one.name.endswith(".yaml"))


@lru_cache
def _file(kind: str) -> dict[str, Any]:
    text = resources.files("ridgeline.catalog").joinpath(f"{kind}.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506 (a safe loader)
    return loaded


@lru_cache
def _ours(kind: str) -> Table:
    where = f"{kind}.yaml"
    table = {row["id"]: row for row in _read(kind, _file(kind), where)}
    for one in table.values():
        check_whole(kind, one, f"{where}, {one['id']}")
    _check_names(kind, table, where)
    return table


def _layers() -> tuple[Layer, ...]:
    named = os.environ.get("RIDGELINE_CATALOG")
    return (*((_user_layer(named),) if named else ()), *_OVERLAY.get())


def _user_layer(named: str) -> Layer:
    try:
        written = Path(named).stat().st_mtime_ns
    except OSError as error:
        raise CatalogError(
            f"cannot be read: {error.strerror}",
            where=named,
            remedy="a YAML file like our catalog's, or unset RIDGELINE_CATALOG",
        ) from error
    return named, _user_file(named, written)


@lru_cache(maxsize=8)
def _user_file(named: str, _written_ns: int) -> Mapping[str, Any]:
    layer = read_file(Path(named))
    _check_layer(layer, named)
    return layer


def read_file(path: Path) -> Mapping[str, Any]:
    """The content of a user's catalog file; CatalogError where it is none."""
    try:
        loaded = yaml.load(path.read_text("utf-8"), Loader=_LOADER)  # noqa: S506
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        told = unreadable(error)
        raise CatalogError(
            f"cannot be read: {told}", where=str(path), remedy="a YAML file like our catalog's"
        ) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise CatalogError(
            "is not a mapping", where=str(path), remedy="`models:` with rows under it"
        )
    return loaded


def unreadable(error: Exception) -> str:
    """What keeps a file from being read, in one line."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return " ".join(str(error).split())


_HEADER = ("schema", "as_of", "sources", "default_source", "default_read_on")


def _check_layer(layer: Mapping[str, Any], where: str) -> None:
    known = kinds()
    for key in layer:
        if key not in known and key not in _HEADER:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            remedy = ", ".join(near or known)
            raise CatalogError("is no part of a catalog", where=f"{where}, {key}", remedy=remedy)
    check_sources(layer, where)
    for kind in known:
        declared = {**_file(kind).get("sources", {}), **(layer.get("sources") or {})}
        for one in _read(kind, layer, where):
            check_declared(one, declared, where)


def _read(kind: str, layer: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The rows of a layer, with the file's defaults for origin filled in, each checked."""
    listed = layer.get(kind) or []
    if not isinstance(listed, list):
        raise CatalogError("is not a list", where=f"{where}, {kind}", remedy="`- id: ...` rows")
    if kind == "xids":
        listed = [*listed, *_families(layer)]
    found: Table = {}
    for index, raw in enumerate(listed):
        at = f"{where}, {kind}[{index}]"
        if not isinstance(raw, Mapping):
            raise CatalogError(f"{raw!r} is no row", where=at, remedy="`id:`, `source:` and fields")
        one = _with_defaults(raw, layer)
        if not isinstance(one.get("id"), str) or not _ID.fullmatch(one["id"]):
            told = f"{one.get('id')!r} is no id"
            remedy = "a name in lower case, without spaces, such as my-model-7b"
            raise CatalogError(told, where=f"{at}.id", remedy=remedy)
        if one["id"] in found:
            raise CatalogError("is there twice", where=f"{at}.id", remedy=f"one {one['id']}")
        check_row(kind, one, f"{where}, {one['id']}")
        found[one["id"]] = one
    return list(found.values())


#: Ids begin with a letter or digit, and can be typed in a shell.
_ID = re.compile(r"[a-z0-9][a-z0-9._+/*-]*")


def _families(layer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Codes that differ only in which of several engines failed, written as one row."""
    for family in layer.get("families", ()):
        same = {key: value for key, value in family.items() if key != "codes"}
        yield from ({"code": code, **same} for code in family["codes"])


def _with_defaults(raw: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    one = dict(raw)
    if "id" not in one and "code" in one:
        one["id"] = str(one["code"])
    if "default_source" in layer and not {"source", "sources", "src"} & one.keys():
        key = layer["default_source"]
        one["source"] = (layer.get("sources") or {}).get(key, key)
    if "default_read_on" in layer:
        one.setdefault("read_on", layer["default_read_on"])
    return one


# Laying one row over another.


def _laid_over(
    below: Mapping[str, Any] | None, above: Mapping[str, Any], where: str
) -> dict[str, Any]:
    if below is None:
        return dict(above)
    told = above.get("source") or "; ".join(above.get("sources", ())) or str(above.get("src"))
    origin = f"{told} (read {above.get('read_on', 'some day')}; {where})"
    origins = dict(below.get(ORIGINS, {})) | dict.fromkeys(_paths(above), origin)
    values = {key: value for key, value in above.items() if key not in _OF_THE_ROW}
    return _merged(below, values) | {ORIGINS: origins}


#: What says where a row is from; that of a user's row goes with the fields it sets.
_OF_THE_ROW = ("source", "sources", "src", "read_on")


def _paths(row: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if nested else value
    return merged
