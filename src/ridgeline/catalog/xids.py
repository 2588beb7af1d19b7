"""NVIDIA's fault codes: what an Xid means, and what a platform should do first.

The class is the first suspect only: most codes have several causes, so repetition across jobs and
the device's history decide about hardware, never one event.
"""

from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.rows import rows
from ridgeline.errors import CatalogError

KIND = "xids"


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. `action` is what to do first, `rule` what to look at besides."""

    code: int
    name: str
    meaning: str
    suspect: str
    action: str
    severity: str
    rule: str
    source: str
    read_on: str


def xid(code: int | str) -> Xid:
    """The meaning of a code (`79`, `"Xid 79"`); CatalogError for one that is unused or unknown."""
    wanted = str(code).strip().lower().removeprefix("xid").strip()
    found = rows(KIND).get(wanted)
    if found is None:
        raise CatalogError(
            f"Xid {code} is reserved or unknown",
            where="xid",
            remedy="`ridgeline catalog list xids`",
        )
    return _read(found)


def xids() -> list[Xid]:
    """All of them in order of their code."""
    return sorted((_read(row) for row in rows(KIND).values()), key=lambda one: one.code)


def _read(row: dict[str, Any]) -> Xid:
    return Xid(
        code=int(row["code"]),
        name=row.get("name", ""),
        meaning=row["meaning"],
        suspect=row.get("class", ""),
        action=row["action"],
        severity=row.get("severity", ""),
        rule=row.get("rule", ""),
        source=str(row.get("source", "")),
        read_on=str(row["read_on"]),
    )
