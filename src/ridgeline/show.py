"""How numbers are written for people: units always, decimal and binary sizes told apart.

One place, so that a table, a tree and a picture say the same number the same way.
"""

import math
from typing import Any, Protocol

from ridgeline.units import NOUNS, Unit, base_symbol, parse_unit


class Shown(Protocol):
    """What can be written: a `quantity.Quantity`."""

    value: Any
    unit: Unit


#: For a dimension: the units to write it in, largest first; the first that gives at least 1 is
#: taken, and the last where none does.
_SCALES: dict[str, tuple[str, ...]] = {
    "B": ("PB", "TB", "GB", "MB", "kB", "B"),
    "s": ("year", "day", "h", "min", "s", "ms", "us", "ns"),
    "B/s": ("TB/s", "GB/s", "MB/s", "B/s"),
    "FLOP": ("ZFLOP", "EFLOP", "PFLOP", "TFLOP", "GFLOP", "FLOP"),
    "FLOP/s": ("EFLOP/s", "PFLOP/s", "TFLOP/s", "GFLOP/s", "FLOP/s"),
    "FLOP/token": ("TFLOP/token", "GFLOP/token", "FLOP/token"),
    "W": ("GW", "MW", "kW", "W"),
    "J": ("GWh", "MWh", "kWh", "kJ", "J"),
    "USD": ("MUSD", "USD"),
    "token/s": ("Mtokens/s", "tokens/s"),
    "token": ("tokens",),
    "B/token": ("B/token",),
    "USD/s": ("USD/h",),
}
_BY_DIMENSION = {
    parse_unit(base).dimension: tuple(parse_unit(symbol) for symbol in symbols)
    for base, symbols in _SCALES.items()
}


def show(quantity: Shown, digits: int = 4) -> str:
    """`"2.684 GB"`, `"327,680 B/token"`, `"161 users"`: the number and its unit.

    A unit that was chosen (`Quantity.named(..., unit)`) is kept; else one is picked that keeps the
    number readable. A sweep's value is written as its range.
    """
    value, unit = quantity.value, unit_for(quantity)
    if getattr(value, "ndim", 0) > 0:
        low, high = (number(float(end) / unit.factor, digits) for end in (value.min(), value.max()))
        return _joined(f"{low} ... {high}", unit.symbol)
    if unit == _TOKENS and _TOO_LONG_A_CONTEXT <= abs(value) < math.inf:
        return _lettered(value, unit, digits)
    return _joined(number(float(value) / unit.factor, digits), unit.symbol)


def exact(quantity: Shown) -> str:
    """`"2,684,354,560 B"` where `show` rounds bytes to a larger unit; else empty."""
    value = quantity.value
    if quantity.unit.dimension != _BYTES or getattr(value, "ndim", 0) > 0:
        return ""
    if not math.isfinite(value) or abs(value) >= _TOO_LONG or value != round(value):
        return ""
    factor = unit_for(quantity).factor
    rounded = float(number(value / factor).replace(",", "")) * factor
    return f"{number(value, 12)} B" if abs(rounded - value) > 1e-12 * abs(value) else ""


_BYTES = parse_unit("B").dimension
_TOO_LONG = 1e15


def compact(quantity: Shown, digits: int = 4) -> str:
    """As `show`, but large counts in millions (M), billions (B) and trillions (T)."""
    value = float(quantity.value)
    if quantity.unit.dimension or abs(value) < _MANY:
        return show(quantity, digits)
    return _lettered(value, quantity.unit, digits)


def _lettered(value: float, unit: Unit, digits: int) -> str:
    factor, letter = next(pair for pair in _LETTERS if abs(value) >= pair[0])
    return f"{number(value / factor, digits)} {letter} {unit.symbol}".rstrip()


_MANY = 1e6
_TOKENS = parse_unit("tokens")
_TOO_LONG_A_CONTEXT = 1e8  # tokens: from here on it is a data set, and is written with a letter
_LETTERS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))


def unit_for(quantity: Shown) -> Unit:
    """The unit to write it in."""
    if quantity.unit.symbol != base_symbol(quantity.unit.dimension):
        return quantity.unit
    scales = _BY_DIMENSION.get(quantity.unit.dimension)
    if scales is None:
        return quantity.unit
    value = quantity.value
    size = float(abs(value).max()) if getattr(value, "ndim", 0) > 0 else abs(float(value))
    if size == 0 or not math.isfinite(size):
        base = parse_unit(base_symbol(quantity.unit.dimension))
        return scales[0] if len(scales) == 1 else base
    return next((unit for unit in scales if _is_readable(size / unit.factor, unit)), scales[-1])


#: From how many of a unit of time on it is written in that unit; fewer if they are whole.
_FROM = {"min": 10.0, "h": 2.0, "day": 3.0, "year": 2.0}


def _is_readable(size: float, unit: Unit) -> bool:
    """Whether a number is large enough for a unit: 136 s rather than 2.267 min."""
    if size < 1 - 1e-12:
        return False
    return size >= _FROM.get(unit.symbol, 1.0) or abs(size - round(size)) <= _ROUNDED * size


_ROUNDED = 1e-9


def number(value: Any, digits: int = 4) -> str:
    """Whole numbers in full with commas, others to `digits` significant digits."""
    if math.isinf(value) or math.isnan(value):
        return {True: "unlimited", False: "undefined"}[math.isinf(value)]
    is_whole = abs(value - round(value)) <= 1e-9 * max(1.0, abs(value))
    if is_whole and abs(value) < 1e15 and (round(value) or not value):
        return f"{round(value):,}"
    size = abs(value)
    if size >= _TOO_LONG:
        return f"{value:.{digits - 1}e}".replace("e+", "e")
    if size >= 10**digits:
        return f"{value:,.0f}"
    if size < 1e-4:
        return f"{value:.{digits - 1}g}"
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    written = f"{value:,.{places}f}"
    return written.rstrip("0").rstrip(".") if places else written


_CALENDAR = ("day", "week", "month", "year")
_PLURALS = {"tokens", "days", "years"} | {
    noun for noun in NOUNS if noun[-1:] == "s" and noun[:-1] in NOUNS
}


def _joined(written: str, symbol: str) -> str:
    if symbol == "%":
        return f"{written} %"
    if written in ("unlimited", "undefined") and symbol not in NOUNS:
        return written
    if symbol in _CALENDAR and written != "1":
        return f"{written} {symbol}s"
    if written == "1" and symbol in _PLURALS:
        return f"1 {symbol[:-1]}"
    if symbol.startswith("1/"):
        return f"{written}{symbol.removeprefix('1')}"
    if symbol.startswith("USD"):
        return f"${written}{symbol.removeprefix('USD')}"
    if symbol.startswith("MUSD"):
        return f"${written} M{symbol.removeprefix('MUSD')}"
    if symbol.endswith(" both"):
        return f"{written} {symbol.removesuffix(' both')} both directions together"
    return f"{written} {symbol}".rstrip()
