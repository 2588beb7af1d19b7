"""Where a user's file says that its values come from: every key has to stand for a source."""

from collections.abc import Iterator, Mapping
from typing import Any

from ridgeline.catalog.schema import date, named, text
from ridgeline.errors import CatalogError


def check_sources(layer: Mapping[str, Any], where: str) -> None:
    """Refuse `sources` that are no names with words, and defaults of another type."""
    declared = layer.get("sources")
    if declared is not None and (found := named(text)(declared)) is not None:
        path, problem, remedy = found
        raise CatalogError(problem, where=f"{where}, sources.{path}".rstrip("."), remedy=remedy)
    for key, check in (("default_source", text), ("default_read_on", date)):
        value = layer.get(key)
        if value is not None and (found := check(value)) is not None:
            raise CatalogError(found[1], where=f"{where}, {key}", remedy=found[2])


def check_declared(row: Mapping[str, Any], declared: Mapping[str, Any], where: str) -> None:
    """Refuse a key in a checked row that stands for no source."""
    for path, key in _keys(row):
        if key is not None and str(key) not in declared:
            remedy = f"`sources: {{{key}: where it is from}}` at the top, or `source:` in words"
            told = f'"{key}" is no source of this file'
            raise CatalogError(told, where=f"{where}, {row['id']}.{path}", remedy=remedy)


def _keys(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    groups = row.get("src") or {}
    if isinstance(groups, Mapping):
        yield from ((f"src.{group}", key) for group, key in groups.items())
    else:
        yield "src", groups
    for index, price in enumerate(row.get("prices_usd_per_accelerator_hour") or ()):
        yield f"prices_usd_per_accelerator_hour[{index}].src", price.get("src")
