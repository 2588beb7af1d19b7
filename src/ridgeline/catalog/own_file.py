"""A person's own catalog file: rows are added or replaced, whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ridgeline.catalog.rows import read_file
from ridgeline.errors import CatalogError


def add_row(file: Path, kind: str, row: Mapping[str, Any]) -> None:
    """Put a row into the file, in place of one with the same id; the file is made where needed.

    Its folder has to be there. Comments in it are lost, everything else stays. Raises CatalogError
    where the file is no catalog or cannot be written; then it is as it was.
    """
    content = _content(file)
    rows = content.get(kind) or []
    if not isinstance(rows, list):
        raise CatalogError(f"{kind} is no list", where=str(file), remedy="rows that start with -")
    ids = [one.get("id") if isinstance(one, Mapping) else None for one in rows]
    at = ids.index(row["id"]) if row["id"] in ids else len(rows)
    rows[at : at + 1] = [dict(row)]
    content[kind] = rows
    if not file.parent.is_dir():
        told = f"cannot be written: there is no folder {file.parent}"
        raise CatalogError(told, where=str(file), remedy=f"mkdir -p {file.parent}")
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
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
        is_there = file.exists()
    except OSError as error:
        told = f"cannot be read: {error.strerror}"
        raise CatalogError(told, where=str(file), remedy="--file with another path") from error
    return dict(read_file(file)) if is_there else {}
