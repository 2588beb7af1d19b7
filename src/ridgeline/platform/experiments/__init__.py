"""Small simulations that a claim's working may ask for: seeded, deterministic, bounded.

    @experiment("ring-imbalance", cost=lambda replicas, rings, **_: replicas * rings)
    def ring_imbalance(replicas: int = 8, rings: int = 2000, seed: int = 0) -> float:

An experiment is a plain function of numbers and words; the words that a parameter takes are its
`Literal`, a whole number is an `int`. `cost` says how much work the arguments are, in numbers drawn
or steps taken, so that no working can ask for more than a few seconds. The result, a number or
several, remembers the arguments it came from.
"""

import difflib
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ridgeline.errors import SpecError
from ridgeline.quantity import Provenance, Quantity
from ridgeline.units import base_symbol, parse_unit, unit_of_name

#: The most that one run may draw or step.
MOST_WORK = 5_000_000

Result = float | tuple[float, ...]


@dataclass(frozen=True)
class Experiment:
    """A registered experiment: its function, and the type of each parameter."""

    name: str
    function: Callable[..., Result]
    cost: Callable[..., float]
    types: dict[str, Any]
    summary: str
    signature: inspect.Signature = field(repr=False)


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str, *, cost: Callable[..., float]
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function; each parameter needs a type and a default."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        assert name not in EXPERIMENTS, f"two experiments are called {name}"
        signature, hints = inspect.signature(function), get_type_hints(function)
        types = {parameter: hints[parameter] for parameter in signature.parameters}
        summary = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        assert summary, f"the experiment {name} has no docstring"
        EXPERIMENTS[name] = Experiment(
            name, lru_cache(maxsize=64)(function), cost, types, summary, signature
        )
        return function

    return register


def experiments() -> dict[str, Experiment]:
    """All of them, by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return EXPERIMENTS


def perform(name: str, *args: Any, **kwargs: Any) -> Quantity | tuple[Quantity, ...]:
    """Run an experiment; SpecError for a name, an argument or an amount of work that it has not."""
    one = experiments().get(name)
    if one is None:
        near = difflib.get_close_matches(str(name), EXPERIMENTS, n=3, cutoff=0.4)
        remedy = ", ".join(near or EXPERIMENTS)
        raise SpecError(f'there is no experiment "{name}"', where="experiment", remedy=remedy)
    try:
        bound = one.signature.bind(*args, **kwargs)
    except TypeError as error:
        remedy = ", ".join(one.types)
        raise SpecError(f"{error}", where=f"experiment {name}", remedy=remedy) from error
    given = set(bound.arguments)
    bound.apply_defaults()
    plain = {key: _plain(one, key, value) for key, value in bound.arguments.items()}
    work = one.cost(**plain)
    if work > MOST_WORK:
        problem = f"{work:,.0f} steps are too many"
        raise SpecError(problem, where=f"experiment {name}", remedy=f"at most {MOST_WORK:,}")
    inputs = tuple(
        _input(key, value, plain[key], is_given=key in given)
        for key, value in bound.arguments.items()
        if not isinstance(plain[key], str)
    )
    words = ", ".join(f"{key} {value}" for key, value in plain.items() if isinstance(value, str))
    return _remembered(one, one.function(**plain), inputs, words)


def _plain(one: Experiment, key: str, value: Any) -> Any:
    """An argument as the function takes it."""
    where, kind = f"experiment {one.name}, {key}", one.types[key]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise SpecError(f"{value!r} is none", where=where, remedy=", ".join(get_args(kind)))
        return value
    if isinstance(value, Quantity):
        wanted = unit_of_name(key)
        if value.dimension != wanted.dimension:
            symbol = base_symbol(value.dimension) or "a plain number"
            raise SpecError(f"takes no {symbol}", where=where, remedy=wanted.symbol or "a number")
        value = value.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise SpecError(f"{value!r} is no number from 0 on", where=where, remedy="a number")
    if kind is int and value != round(value):
        remedy = f"{round(value)}"
        raise SpecError(f"{value:g} is not a whole number", where=where, remedy=remedy)
    return kind(value)


def _input(key: str, value: Any, plain: float, *, is_given: bool) -> Quantity:
    """An argument as a leaf of the derivation, or the quantity that was passed."""
    if isinstance(value, Quantity):
        return value if value.name else value.but(name=key)
    return Quantity(
        float(plain),
        parse_unit(base_symbol(unit_of_name(key).dimension)),
        name=key,
        provenance=Provenance.GIVEN if is_given else Provenance.ASSUMED,
        source="the working" if is_given else "default of the experiment",
    )


def _remembered(
    one: Experiment, result: Result, inputs: tuple[Quantity, ...], words: str
) -> Quantity | tuple[Quantity, ...]:
    def told(value: float, name: str) -> Quantity:
        return Quantity(
            float(value),
            parse_unit(""),
            name=name,
            op=one.name.replace("-", "_"),
            args=inputs,
            source=one.summary,
            note=words,
        )

    if isinstance(result, tuple):
        return tuple(told(value, f"{one.name} {index}") for index, value in enumerate(result))
    return told(result, one.name)
