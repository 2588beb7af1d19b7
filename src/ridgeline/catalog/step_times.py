"""Fitted coefficients of the step-time model: which were fitted on what, and which apply here.

A row holds for a model (or all `dense` or `moe` ones), accelerator, engine, version and dtype;
`"*"` holds for all. The row with the most words in common is taken. `ridgeline calibrate` writes
rows into a user's catalog file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.rows import rows
from ridgeline.errors import CatalogError
from ridgeline.physics.step_time import NAMES, Coefficients
from ridgeline.quantity import Provenance, given
from ridgeline.units import base_symbol, unit_of_name

KIND = "step_times"
ANY = "*"
FAMILIES = ("dense", "moe")
#: What a fit depends on, in the order in which a mismatch matters least.
KEY = ("dtype", "version", "model", "accelerator", "engine")


@dataclass(frozen=True, slots=True)
class FittedStep:
    """One row: for what it was fitted, its coefficients as Quantities, and how well they did."""

    id: str
    key: Mapping[str, str]
    coefficients: Coefficients
    points: int
    median_error: float


def step_coefficients(family: str, **wanted: str) -> FittedStep:
    """The row that fits best; `family` is `dense` or `moe`, `wanted` has words of `KEY`.

    A word that is not given, or is `*`, fits only rows that hold for all. Raises CatalogError where
    there is no row, not even a default.
    """
    unknown = set(wanted) - set(KEY)
    assert not unknown, unknown
    fitting = [row for row in rows(KIND).values() if _fits(row, family, wanted)]
    if not fitting:
        told = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise CatalogError(
            f"no step time is fitted for {told}",
            where=KIND,
            remedy="`ridgeline calibrate RUNS.csv` fits one to your measurements",
        )
    return _read(max(fitting, key=_specificity))


def _fits(row: Mapping[str, Any], family: str, wanted: Mapping[str, str]) -> bool:
    def meant(name: str) -> tuple[str, ...]:
        return (ANY, wanted.get(name, ANY), *([family] if name == "model" else []))

    return all(row[name] in meant(name) for name in KEY)


def _specificity(row: Mapping[str, Any]) -> tuple[int, ...]:
    """How many words are no `*`; where numbers are equal the last of `KEY` weighs most."""
    named = [int(row[name] not in (ANY, *FAMILIES)) for name in KEY]
    return (sum(named), *reversed(named), int(row["model"] in FAMILIES))


def _read(row: Mapping[str, Any]) -> FittedStep:
    values: dict[str, Any] = {}
    for name in NAMES:
        one = _coefficient(row, name)
        symbol = base_symbol(unit_of_name(name).dimension)
        values[name] = given(
            one["value"],
            symbol,
            name=f"{row['id']}.{name}",
            provenance=Provenance.FITTED,
            source=row["source"],
            note=f"95 % within {one['low']:.3g} to {one['high']:.3g}",
            interval=(one["low"], one["high"]),
        )
    key = {name: row[name] for name in KEY}
    coefficients = Coefficients(**values, source=row["id"])
    return FittedStep(row["id"], key, coefficients, row["points"], row["median_error"])


def _coefficient(row: Mapping[str, Any], name: str) -> Mapping[str, float]:
    one: Mapping[str, float] = row["coefficients"].get(name) or {}
    for word in ("value", "low", "high"):
        if one.get(word) is None:
            raise CatalogError(
                "is missing",
                where=f"{row['id']}.coefficients.{name}.{word}",
                remedy="`ridgeline calibrate RUNS.csv --file` writes whole rows",
            )
    return one
