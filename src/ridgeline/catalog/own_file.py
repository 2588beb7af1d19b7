"""A person's own catalog file: rows are added or replaced, whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ridgeline.errors import CatalogError


def add_row(file: Path, kind: str, row: Mapping[str, Any]) -> None:
    """Put a row into the file, in place of one with the same id; the file is made where needed.

    Comments in it are lost, everything else stays. Raises CatalogError where the file is no catalog
    or cannot be written; then it is as it was.
    """
    content = _content(file)
    rows = content.setdefault(kind, [])
    if not isinstance(rows, list):
        raise CatalogError(f"{kind} is no list", where=str(file), remedy="rows that start with -")
    at = next((n for n, one in enumerate(rows) if one.get("id") == row["id"]), len(rows))
    rows[at : at + 1] = [dict(row)]
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as out:
            yaml.safe_dump(content, out, sort_keys=False, allow_unicode=True)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        told = f"cannot be written: {error.strerror}"
        raise CatalogError(told, where=str(file), remedy="--file with another path") from error


def _content(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise CatalogError(f"cannot be read: {error}", where=str(file), remedy="YAML") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise CatalogError("is not a mapping", where=str(file), remedy="`models:` with rows in it")
    return loaded
