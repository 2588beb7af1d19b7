"""What makes a function a law: names with units, three kinds of numbers, one registry.

    @law
    def read_s(read_bytes: N, bytes_per_s: N) -> N:
        \"\"\"Time to move so many bytes once.

        Source: bytes over bandwidth.
        \"\"\"
        return read_bytes / bytes_per_s

The last words of a name are its unit (`units.unit_of_name`): on quantities every argument and the
result are checked against it; on floats and arrays all are in those base units and the function
runs as it is. A default value is a constant of the law: it has a name and a unit, shows in the
derivation, and can be set like any input.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ridgeline.errors import UnitError
from ridgeline.quantity import Number, Provenance, Quantity, given
from ridgeline.units import Unit, base_symbol, unit_of_name

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Law:
    """A registered law: `units` of its parameters in order, and of its result."""

    name: str
    function: Callable[..., Number]
    parameters: dict[str, Unit]
    constants: dict[str, float]
    result: Unit
    summary: str
    source: str


#: Every law by name; filled when the modules of `physics` are imported.
LAWS: dict[str, Law] = {}


def law(function: F) -> F:
    """Register a function as a law, and let it take quantities."""
    name = function.__name__
    signature = inspect.signature(function)
    units = {parameter: unit_of_name(parameter) for parameter in signature.parameters}
    constants = {
        parameter.name: float(parameter.default)
        for parameter in signature.parameters.values()
        if parameter.default is not inspect.Parameter.empty
    }
    result, (summary, source) = unit_of_name(name), _told(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(arg, Quantity) for arg in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        taken = {
            parameter: _argument(name, parameter, units[parameter], value, source)
            for parameter, value in bound.arguments.items()
        }
        return _result(name, result, function(**taken), source)

    assert name not in LAWS, f"two laws are called {name}"
    LAWS[name] = Law(name, function, units, constants, result, summary, source)
    return call  # type: ignore[return-value]


def _told(function: Callable[..., Any]) -> tuple[str, str]:
    """The first line of the docstring, and what follows `Source:`."""
    text = inspect.cleandoc(function.__doc__ or "")
    assert text, f"the law {function.__name__} has no docstring"
    _, _, source = text.partition("Source:")
    return text.split("\n", 1)[0], " ".join(source.split())


def _argument(law_name: str, parameter: str, unit: Unit, value: Any, source: str) -> Quantity:
    if not isinstance(value, Quantity):
        if getattr(value, "ndim", 0) > 0:
            return Quantity(value, unit, name=parameter, provenance=Provenance.GIVEN)
        symbol = base_symbol(unit.dimension)
        return given(
            float(value), symbol, name=parameter, provenance=Provenance.ASSUMED, source=source
        )
    if value.dimension != unit.dimension:
        raise UnitError(
            f"{law_name} takes {parameter} [{unit.symbol or 'a plain number'}], and got "
            f"{value.name or 'a number'} [{value.unit.symbol or 'a plain number'}]",
            where=law_name,
            remedy="check the units",
        )
    return value


def _result(name: str, unit: Unit, result: Quantity, source: str) -> Quantity:
    assert isinstance(result, Quantity), f"{name} lost its quantities"
    assert result.dimension == unit.dimension, (
        f"{name} promises [{unit.symbol}] and gives [{base_symbol(result.dimension)}]"
    )
    if result.name and not result.op:
        result = result.but(op="is", args=(result,))  # a law that passes an input on
    return result.named(name, source=source)
