"""The words of workings: functions, laws, rows of the catalog, quantities.

`expressions` walks a tree and finds every name here; nothing else can be called.
"""

import difflib
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from ridgeline import physics, quantity
from ridgeline.catalog.accelerators import Accelerator, accelerator, dtype_bytes
from ridgeline.catalog.models import Model, model
from ridgeline.errors import SpecError
from ridgeline.physics.law import LAWS
from ridgeline.quantity import Provenance, Quantity
from ridgeline.units import Unit, parse_number, parse_unit

#: What a name stands for or a call gives: a number with its past, a bare one, a truth, a row, ...
Value = Any


def _q(written: Value, name: str = "") -> Quantity:
    """A number with its unit, as a person writes it."""
    match = _QUANTITY.fullmatch(written if isinstance(written, str) else "")
    if match is None:
        raise SpecError(f"{written!r} is no quantity", where="q", remedy='q("400 Gb/s")')
    letter, symbol = match[2], match[3]
    unit = parse_unit(symbol or letter) if letter and letter in "BK" else parse_unit(symbol)
    value, unit = parse_number(written, unit.dimension)
    return Quantity(value, unit, name=name, provenance=Provenance.GIVEN, source="the working")


#: A number, a letter that multiplies it (`8k tokens`, `2.8T params`), a unit.
_QUANTITY = re.compile(r"\s*([-+0-9.,_]+(?:[eE][-+]?[0-9]+)?)\s*([kKMBT](?![A-Za-z/]))?\s*(.*?)\s*")


def _sum(terms: Any) -> Value:
    """The sum of a loop or of a list, as one step."""
    parts = tuple(terms)
    if not any(isinstance(part, Quantity) for part in parts):
        return float(math.fsum(parts))
    first = next(part for part in parts if isinstance(part, Quantity))
    total = first - first
    for part in parts:
        total = total + part  # checks the units
    return Quantity(total.value, total.unit, op="sum", args=parts)


def _extreme(function: Callable[..., Value]) -> Callable[..., Value]:
    """`largest` and `smallest` take options with names; without names these are first, second."""

    def call(*options: Value, **named: Value) -> Value:
        ordinals = ("first", "second", "third", "fourth", "fifth", "sixth")
        return function(**dict(zip(ordinals, options, strict=False)), **named)

    return call


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "q": _q,
    "sum": _sum,
    "largest": _extreme(quantity.largest),
    "smallest": _extreme(quantity.smallest),
    "choose": quantity.choose,
    "ceil": quantity.ceil,
    "floor": quantity.floor,
    "sqrt": quantity.sqrt,
    "exp": quantity.exp,
    "log": quantity.log,
    "log2": quantity.log2,
    "abs": abs,
    "accelerator": accelerator,
    "model": model,
    "dtype_bytes": dtype_bytes,
}


@lru_cache
def laws() -> Mapping[str, Callable[..., Value]]:
    """Every registered law, as a working calls it: plain numbers get the unit they stand for."""
    for module in pkgutil.iter_modules(physics.__path__):
        importlib.import_module(f"{physics.__name__}.{module.name}")
    return {name: _with_units(name) for name in LAWS}


def _with_units(name: str) -> Callable[..., Value]:
    law = LAWS[name]
    function = getattr(importlib.import_module(law.function.__module__), name)
    signature = inspect.signature(law.function)

    def call(*args: Value, **kwargs: Value) -> Value:
        bound = signature.bind(*args, **kwargs).arguments
        return function(**{key: _typed(key, bound[key], law.parameters[key]) for key in bound})

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _typed(name: str, value: Value, unit: Unit) -> Value:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return Quantity(value, unit, name=name, provenance=Provenance.GIVEN, source="the working")
    if not isinstance(value, Quantity):
        raise SpecError(f"{name} takes a number", where=name, remedy='a number or q("80 GB")')
    return value


_ROWS = (Accelerator, Model)


@lru_cache
def attributes(kind: type) -> frozenset[str]:
    """Public properties and methods of a row of the catalog; of anything else nothing."""
    if kind not in _ROWS:
        return frozenset()
    return frozenset(
        name
        for ours in kind.__mro__[:-1]
        for name, value in vars(ours).items()
        if not name.startswith("_") and (isinstance(value, property) or inspect.isfunction(value))
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The known words that are most alike, as a remedy."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"{', '.join(near)} (nearest)" if near else "see the guide to claims"
