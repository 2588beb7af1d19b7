"""A number that remembers its unit, how it was computed, and where its inputs come from.

Arithmetic on a `Quantity` is arithmetic on its value and, at the same time, the growth of a tree:
each result keeps its operands, so that every number a plan prints can be explained down to data
sheets and assumptions. Dimensions are checked at each step. The value may be a numpy array, one
element a point of a sweep; the tree is then the same for all of them.

The functions at the end (`largest`, `ceil`, `choose`, ...) take floats, arrays and quantities
alike, so that a law is written once. Whoever needs only the number works with floats: then no tree
grows and nothing here runs. Used by `physics`, `catalog`, topics and their explanations.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from fractions import Fraction
from typing import Any, NoReturn, Self

from ridgeline.errors import UnitError
from ridgeline.show import show
from ridgeline.units import (
    NONE,
    Dimension,
    Unit,
    base_symbol,
    parse_number,
    parse_unit,
    raised,
    times,
)

#: A float, a numpy array of floats, or a Quantity: laws are written for all three.
Number = Any


class Provenance(StrEnum):
    """Where a number comes from."""

    DATASHEET = "datasheet"
    MEASURED = "measured"
    FITTED = "fitted"
    PUBLISHED = "published"  # a model's configuration, a paper, a price list
    DEFINED = "defined"  # true by definition, such as two FLOP for a multiply-add
    ASSUMED = "assumed"
    GIVEN = "given"  # by whoever asks
    COMPUTED = "computed"


class Quantity:
    """One number with its past. Immutable; made by `given`, by a catalog, or by arithmetic.

    `value` is in base units. `args` are the operands of `op`: quantities, or plain numbers that
    stand in the formula. `labels` name the operands of `max`, `min` and `if`, `chosen` says which
    of them the value is: an index, or for a sweep an array of indices. `interval` is the range,
    in base units, that the source gives for an input.
    """

    __slots__ = (
        "args",
        "chosen",
        "interval",
        "labels",
        "name",
        "note",
        "op",
        "provenance",
        "source",
        "unit",
        "value",
    )

    def __init__(
        self,
        value: Any,
        unit: Unit,
        *,
        name: str = "",
        op: str = "",
        args: tuple[Any, ...] = (),
        labels: tuple[str, ...] = (),
        chosen: Any = None,
        provenance: Provenance = Provenance.COMPUTED,
        source: str = "",
        note: str = "",
        interval: tuple[float, float] | None = None,
    ) -> None:
        self.value = value
        self.unit = unit
        self.name = name
        self.op = op
        self.args = args
        self.labels = labels
        self.chosen = chosen
        self.provenance = provenance
        self.source = source
        self.note = note
        self.interval = interval

    @property
    def dimension(self) -> Dimension:
        """Powers of the base units."""
        return self.unit.dimension

    @property
    def inputs(self) -> tuple["Quantity", ...]:
        """The operands that are quantities."""
        return tuple(arg for arg in self.args if isinstance(arg, Quantity))

    def to(self, symbol: str) -> Any:
        """The number in this unit; UnitError where it is of another kind."""
        unit = parse_unit(symbol)
        if unit.dimension != self.dimension:
            _clash("write", self, f"in {symbol}")
        return self.value / unit.factor

    def but(self, **changes: Any) -> "Quantity":
        """The same with some fields changed."""
        return Quantity(**({slot: getattr(self, slot) for slot in self.__slots__} | changes))

    def named(self, name: str, unit: str = "", *, note: str = "", source: str = "") -> "Quantity":
        """The same number as a step that has a name: it can be asked for, and be set.

        `unit` is how it is written from here on.
        """
        written = parse_unit(unit) if unit else self.unit
        if written.dimension != self.dimension:
            _clash("name", self, f"{name}, in {unit}")
        told = self.but(
            name=name, unit=written, note=note or self.note, source=source or self.source
        )
        return _overridden(told)

    # Arithmetic. Each operation checks dimensions and keeps its operands.

    def __add__(self, other: Any) -> "Quantity":
        return _sum(self, other, "+", lambda a, b: a + b)

    def __radd__(self, other: Any) -> "Quantity":
        return _sum(other, self, "+", lambda a, b: a + b)

    def __sub__(self, other: Any) -> "Quantity":
        return _sum(self, other, "-", lambda a, b: a - b)

    def __rsub__(self, other: Any) -> "Quantity":
        return _sum(other, self, "-", lambda a, b: a - b)

    def __mul__(self, other: Any) -> "Quantity":
        return _product(self, other, "*")

    def __rmul__(self, other: Any) -> "Quantity":
        return _product(other, self, "*")

    def __truediv__(self, other: Any) -> "Quantity":
        return _product(self, other, "/")

    def __rtruediv__(self, other: Any) -> "Quantity":
        return _product(other, self, "/")

    def __pow__(self, power: Any) -> "Quantity":
        exponent = power.value if isinstance(power, Quantity) else power
        if isinstance(power, Quantity) and power.dimension:
            _clash("raise to a power of", power, "")
        if self.dimension and not isinstance(exponent, int | float):
            _clash("raise to a varying power", self, "")
        dimension = raised(self.dimension, exponent) if self.dimension else NONE
        value = self.value**exponent
        return Quantity(value, _base(dimension), op="**", args=(self, power))

    def __rpow__(self, other: Any) -> "Quantity":
        if self.dimension:
            _clash("use as an exponent", self, "")
        return Quantity(other**self.value, _base(NONE), op="**", args=(other, self))

    def __neg__(self) -> "Quantity":
        return Quantity(-self.value, self.unit, op="-", args=(0, self))

    def __abs__(self) -> "Quantity":
        return Quantity(abs(self.value), self.unit, op="abs", args=(self,))

    def __lt__(self, other: Any) -> Any:
        return self.value < _comparable(self, other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _comparable(self, other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _comparable(self, other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _comparable(self, other)

    def __float__(self) -> float:
        if self.dimension:
            _clash("take as a plain number", self, "; divide by its unit, or use .to()")
        return float(self.value)

    def __repr__(self) -> str:
        return f"<{self.name or 'quantity'} {show(self)}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: Any) -> Self:
        return self

    # numpy must not take a Quantity apart: `array * quantity` is our __rmul__.
    __array_ufunc__ = None

    def walk(self) -> Iterator["Quantity"]:
        """Itself and all it was computed from, each once, parents first."""
        seen: set[int] = set()
        waiting = [self]
        while waiting:
            one = waiting.pop()
            if id(one) not in seen:
                seen.add(id(one))
                yield one
                waiting.extend(reversed(one.inputs))


def given(
    written: str | float,
    unit: str = "",
    *,
    name: str = "",
    provenance: Provenance = Provenance.GIVEN,
    source: str = "",
    note: str = "",
    interval: tuple[float, float] | None = None,
) -> Quantity:
    """A number to start from: `given("3.35 TB/s")`, `given(8192, "tokens", name="context")`.

    `interval` is in the same unit. Raises UnitError for a unit that is not known.
    """
    if isinstance(written, str) and not unit:
        number, _, symbol = written.strip().partition(" ")
        unit = symbol
        written = float(number.replace(",", "").replace("_", ""))
    known = parse_unit(unit)
    scaled = (interval[0] * known.factor, interval[1] * known.factor) if interval else None
    start = Quantity(
        float(written) * known.factor,
        known,
        name=name,
        provenance=provenance,
        source=source,
        note=note,
        interval=scaled,
    )
    return _overridden(start) if name else start


# Setting values from outside.

Override = Callable[[Quantity], Quantity]
_OVERRIDES: ContextVar[Mapping[str, Override] | None] = ContextVar("overrides", default=None)


@contextmanager
def overriding(overrides: Mapping[str, Override]) -> Iterator[None]:
    """Inside, whatever gets one of these names is replaced by what the function makes of it.

    A catalog's value is called `row.field`; `field` alone stands for that of every row.
    """
    token = _OVERRIDES.set(dict(_OVERRIDES.get() or {}) | dict(overrides))
    try:
        yield
    finally:
        _OVERRIDES.reset(token)


def set_to(text: str) -> Override:
    """An override from what a person wrote; it has to fit the unit of what it replaces."""

    def override(was: Quantity) -> Quantity:
        value, unit = parse_number(text, was.dimension)
        return replaced(was, value, unit if unit.symbol else was.unit)

    return override


#: Fields of a catalog that count parts and may well be none.
_MAY_BE_NONE = ("shared", "dense", "window", "fixed", "first")


def check_setting(was: Quantity, now: Quantity) -> None:
    """UnitError where a value cannot stand for what it replaces.

    It must be finite; not negative where that is positive; of a catalog's value not zero, and whole
    where that counts something.
    """
    if any(getattr(one.value, "ndim", 0) for one in (was, now)):
        return
    old, new = float(was.value), float(now.value)
    if not math.isfinite(new):
        raise UnitError("not a finite number", remedy=f"nearer to {show(was)}")
    if old > 0 > new:
        raise UnitError(f"{show(now)} is below 0", remedy=f"a positive number, such as {show(was)}")
    if "." not in was.name or old <= 0:
        return
    field = was.name.rpartition(".")[2]
    if new == 0 and not any(word in field for word in _MAY_BE_NONE) and "usd" not in field:
        raise UnitError(f"{field} cannot be 0", remedy=f"a positive number, such as {show(was)}")
    is_count = not was.dimension and old >= 1 and old.is_integer() and was.unit.factor == 1
    if is_count and new != round(new):
        raise UnitError(f"{new:g} is not a whole number", remedy=f"{max(1, round(new))}")


def replaced(was: Quantity, value: Any, unit: Unit | None = None) -> Quantity:
    """The same step with a value that was set, and no past but the note of what it replaces."""
    note = f"instead of {show(was)}"
    return Quantity(
        value, unit or was.unit, name=was.name, provenance=Provenance.GIVEN, source="you", note=note
    )


def _overridden(quantity: Quantity) -> Quantity:
    overrides = _OVERRIDES.get()
    if not overrides:
        return quantity
    name = quantity.name
    override = overrides.get(name) or overrides.get(name.rsplit(".", 1)[-1])
    return override(quantity) if override is not None else quantity


# How operations work.


def _base(dimension: Dimension) -> Unit:
    return parse_unit(base_symbol(dimension)) if dimension else _PURE


_PURE = parse_unit("")


def value_of(number: Number) -> Any:
    """The bare value of a Quantity; any other number as it is."""
    return number.value if isinstance(number, Quantity) else number


def _dimension_of(number: Number) -> Dimension:
    return number.dimension if isinstance(number, Quantity) else NONE


def _is_zero(number: Number) -> bool:
    return isinstance(number, int | float) and number == 0


def _clash(verb: str, quantity: Quantity, rest: str) -> NoReturn:
    written = quantity.unit.symbol or "a plain number"
    raise UnitError(
        f"cannot {verb} {quantity.name or 'a number'} [{written}] {rest}".rstrip(),
        remedy="check the units of both sides",
    )


def _same_dimension(verb: str, left: Number, right: Number) -> None:
    if _dimension_of(left) != _dimension_of(right) and not _is_zero(left) and not _is_zero(right):
        one, other = (left, right) if isinstance(left, Quantity) else (right, left)
        told = (
            f"{other.name or 'a number'} [{other.unit.symbol or 'a plain number'}]"
            if isinstance(other, Quantity)
            else f"the plain number {other}"
        )
        _clash(verb, one, f"and {told}")


def _sum(left: Number, right: Number, op: str, combine: Callable[[Any, Any], Any]) -> Quantity:
    _same_dimension("add" if op == "+" else "subtract", left, right)
    leading = left if isinstance(left, Quantity) and left.dimension else right
    unit = leading.unit if isinstance(leading, Quantity) else left.unit
    return Quantity(combine(value_of(left), value_of(right)), unit, op=op, args=(left, right))


def _product(left: Number, right: Number, op: str) -> Quantity:
    power = Fraction(1 if op == "*" else -1)
    dimension = times(_dimension_of(left), _dimension_of(right), power)
    a, b = value_of(left), value_of(right)
    try:
        value = a * b if op == "*" else a / b
    except ZeroDivisionError:
        name = _zero_behind(right)
        raise UnitError(
            f"{name or 'a divisor'} is 0", where=name, remedy="a number above 0"
        ) from None
    return Quantity(value, _base(dimension), op=op, args=(left, right))


def _zero_behind(divisor: Number) -> str:
    """The name of what made a divisor 0: its own, or that of an input."""
    if not isinstance(divisor, Quantity):
        return ""
    steps = [step for step in divisor.walk() if step.name]
    named = [step.name for step in steps if step.value is not None and step.value == 0]
    return divisor.name or next(iter(named or [step.name for step in steps]), "")


def _comparable(left: Quantity, right: Number) -> Any:
    _same_dimension("compare", left, right)
    return value_of(right)


# Functions for floats, arrays and quantities.


def _elementwise(name: str, number: Number) -> Number:
    if isinstance(number, Quantity):
        if number.dimension:
            _clash(f"take {name} of", number, "")
        value = _apply(name, number.value)
        return Quantity(value, number.unit, op=name, args=(number,))
    return _apply(name, number)


def _apply(name: str, value: Any) -> Any:
    if isinstance(value, int | float):
        try:
            return float(getattr(math, name)(value))
        except (ValueError, OverflowError):
            raise UnitError(
                f"cannot take {name} of {value:g}", remedy="numbers nearer to the defaults"
            ) from None
    import numpy as np

    return getattr(np, name)(value)


# A share of a count that is whole but for rounding errors must not become one more.
_ROUNDING = 1e-9


def ceil(number: Number) -> Number:
    """The next whole number; what misses one by a rounding error is that one."""
    return _whole("ceil", number, -_ROUNDING)


def floor(number: Number) -> Number:
    """The whole number below; what misses one by a rounding error is that one."""
    return _whole("floor", number, _ROUNDING)


def _whole(name: str, number: Number, nudge: float) -> Number:
    bare = value_of(number)
    value = _unlimited_or(name, bare, nudge)
    if isinstance(number, Quantity):
        return Quantity(value, number.unit, op=name, args=(number,))
    return value


def _unlimited_or(name: str, bare: Any, nudge: float) -> Any:
    """Rounded; what is unlimited stays so."""
    if isinstance(bare, int | float):
        return bare if math.isinf(bare) else _apply(name, bare + nudge * (1 + abs(bare)))
    import numpy as np

    finite = np.where(np.isinf(bare), 0.0, bare)
    return np.where(np.isinf(bare), bare, _apply(name, finite + nudge * (1 + abs(finite))))


def exp(number: Number) -> Number:
    """The exponential of a plain number."""
    return _elementwise("exp", number)


def log(number: Number) -> Number:
    """The natural logarithm of a plain number."""
    return _elementwise("log", number)


def log2(number: Number) -> Number:
    """The binary logarithm of a plain number."""
    return _elementwise("log2", number)


def applied(name: str, function: Callable[..., float], *numbers: Number) -> Number:
    """A function of plain numbers that is no arithmetic: a quantile, a search, a simulation.

    In a derivation it stands as `name(operands)`; a sweep calls it once a point.
    """
    for number in numbers:
        if _dimension_of(number):
            _clash(f"take {name} of", number, "")
    values = [value_of(number) for number in numbers]
    if any(getattr(value, "ndim", 0) for value in values):
        import numpy as np

        value: Any = np.vectorize(function, otypes=[float])(*values)
    else:
        value = float(function(*values))
    if not any(isinstance(number, Quantity) for number in numbers):
        return value
    return Quantity(value, _PURE, op=name, args=numbers)


def sqrt(number: Number) -> Number:
    """The square root; of a unit too: s^2 gives s."""
    if not isinstance(number, Quantity):
        return _apply("sqrt", number)
    dimension = raised(number.dimension, 0.5)
    return Quantity(_apply("sqrt", number.value), _base(dimension), op="sqrt", args=(number,))


def largest(**options: Number) -> Number:
    """The largest of named options; the name of the one that binds is kept."""
    return _extreme("max", options)


def smallest(**options: Number) -> Number:
    """The smallest of named options; the name of the one that binds is kept."""
    return _extreme("min", options)


def _extreme(op: str, options: Mapping[str, Number]) -> Number:
    values = [value_of(option) for option in options.values()]
    if not any(isinstance(option, Quantity) for option in options.values()):
        return _extreme_value(op, values)
    first = next(option for option in options.values() if isinstance(option, Quantity))
    for option in options.values():
        _same_dimension("compare", first, option)
    value, chosen = _extreme_value(op, values), _which(op, values)
    unit = next((o.unit for o in options.values() if isinstance(o, Quantity) and o.dimension), None)
    return Quantity(
        value,
        unit or first.unit,
        op=op,
        args=tuple(options.values()),
        labels=tuple(options),
        chosen=chosen,
    )


def _extreme_value(op: str, values: list[Any]) -> Any:
    if all(isinstance(value, int | float) for value in values):
        return max(values) if op == "max" else min(values)
    import numpy as np

    return (np.maximum if op == "max" else np.minimum).reduce(np.broadcast_arrays(*values))


def _which(op: str, values: list[Any]) -> Any:
    if all(isinstance(value, int | float) for value in values):
        return values.index(max(values) if op == "max" else min(values))
    import numpy as np

    stacked = np.stack(np.broadcast_arrays(*values))
    return stacked.argmax(0) if op == "max" else stacked.argmin(0)


def holds(condition: Any) -> bool:
    """Whether a comparison holds; in a sweep, at every point."""
    return bool(condition.all() if hasattr(condition, "all") else condition)


def choose(condition: Any, yes: Number, no: Number, *, why: str) -> Number:
    """`yes` where the condition holds, else `no`; `why` says in words what the condition is.

    `condition` is a bool, or an array of them in a sweep (comparisons of quantities give both).
    """
    array = not isinstance(condition, bool) and getattr(condition, "ndim", 0) > 0
    if array:
        import numpy as np

        value = np.where(condition, value_of(yes), value_of(no))
        chosen: Any = np.where(condition, 0, 1)
    else:
        value, chosen = value_of(yes) if condition else value_of(no), 0 if condition else 1
    if not isinstance(yes, Quantity) and not isinstance(no, Quantity):
        return value
    _same_dimension("choose between", yes, no)
    one = yes if isinstance(yes, Quantity) else no
    return Quantity(
        value, one.unit, op="if", args=(yes, no), labels=(why, f"not {why}"), chosen=chosen
    )
