"""Units as people write them: sizes and durations for the spec, and the algebra behind `quantity`.

Everything is kept in base units (B, s, FLOP, token, USD, J, K, kg, m); a `Unit` says which powers
of them a number has, and how it was written. Told apart on purpose: GB and GiB, bits and bytes,
and a link's rate in one direction from the sum of both. Counts (GPUs, layers, requests) have a
noun for print and no dimension.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ridgeline.errors import UnitError

_SIZES = {
    "": 1.0, "b": 1.0,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")

Dimension = tuple[tuple[str, Fraction], ...]
NONE: Dimension = ()

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SMALL = {"n": 1e-9, "u": 1e-6, "m": 1e-3}


def _atoms() -> dict[str, tuple[float, Dimension]]:
    """Every unit word: its factor to base units, and its dimension."""
    found: dict[str, tuple[float, Dimension]] = {"1": (1.0, NONE), "": (1.0, NONE)}

    def add(word: str, factor: float, dimension: Mapping[str, int]) -> None:
        found[word] = (factor, _sorted({name: Fraction(n) for name, n in dimension.items()}))

    for prefix, factor in (_DECIMAL | _BINARY).items():
        add(f"{prefix}B", factor, {"B": 1})
        add(f"{prefix}b", factor / 8, {"B": 1})
    for prefix, factor in _DECIMAL.items():
        add(f"{prefix}FLOP", factor, {"FLOP": 1})
        add(f"{prefix}W", factor, {"J": 1, "s": -1})
        add(f"{prefix}J", factor, {"J": 1})
        add(f"{prefix}Wh", factor * 3600, {"J": 1})
        add(f"{prefix}USD", factor, {"USD": 1})
        add(f"{prefix}tokens", factor, {"token": 1})
        add(f"{prefix}token", factor, {"token": 1})
        add(f"{prefix}Hz", factor, {"s": -1})
    for prefix, factor in (_SMALL | {"": 1.0}).items():
        add(f"{prefix}s", factor, {"s": 1})
        add(f"{prefix}m", factor, {"m": 1})
        add(f"{prefix}USD", factor, {"USD": 1})
    for word, seconds in {
        "min": 60, "h": 3600, "hour": 3600, "day": 86400, "days": 86400, "d": 86400,
        "week": 604800, "month": 2_628_000, "year": 31_536_000, "years": 31_536_000,
    }.items():  # fmt: skip
        add(word, seconds, {"s": 1})
    add("K", 1, {"K": 1})
    add("C", 1, {"K": 1})  # degrees Celsius: laws take differences only, and those are kelvins
    add("kg", 1, {"kg": 1})
    add("g", 1e-3, {"kg": 1})
    add("mg", 1e-6, {"kg": 1})
    add("cm", 1e-2, {"m": 1})
    add("uS", 1e-6, {"S": 1})  # siemens, for the conductivity of a coolant
    add("L", 1e-3, {"m": 3})
    found["%"] = (0.01, NONE)
    for noun in NOUNS:
        found[noun] = (1.0, NONE)
    return found


_NOUNS = """
GPU GPUs chip chips node nodes user users layer layers param params head heads expert
experts request requests replica replicas switch switches port ports cable cables endpoint
endpoints leaf leaves spine spines host hosts session sessions pod pods rack racks CDU
CDUs core cores sequence sequences block blocks step steps image images query queries
adapter adapters rank ranks hop hops x share cycles launches collectives kernels tile tiles values
stages jobs spares task tasks test tests fault faults
"""
#: Words that print beside a count and have no dimension.
NOUNS = frozenset(_NOUNS.split())


@dataclass(frozen=True, slots=True)
class Unit:
    """How a number is written: `value in base units = number x factor`."""

    symbol: str
    factor: float
    dimension: Dimension

    def __str__(self) -> str:
        return self.symbol


def _sorted(powers: Mapping[str, Fraction]) -> Dimension:
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def times(left: Dimension, right: Dimension, power: int | Fraction = 1) -> Dimension:
    """The dimension of a product, or with a power of -1 of a quotient."""
    powers = dict(left)
    for name, exponent in right:
        powers[name] = powers.get(name, Fraction(0)) + exponent * power
    return _sorted(powers)


def raised(dimension: Dimension, power: float) -> Dimension:
    """The dimension of a power; roots give fractions."""
    exact = Fraction(power).limit_denominator(12)
    return _sorted({name: exponent * exact for name, exponent in dimension})


@lru_cache(maxsize=512)
def base_symbol(dimension: Dimension) -> str:
    """`B/s`, `FLOP/B`, ... in base units; empty for a pure number."""

    def part(name: str, power: Fraction) -> str:
        return name if power == 1 else f"{name}^{power}"

    over = [part(name, power) for name, power in dimension if power > 0]
    under = [part(name, -power) for name, power in dimension if power < 0]
    if dict(dimension) == {"J": 1, "s": -1}:
        return "W"
    if not under:
        return " ".join(over)
    return f"{' '.join(over) or '1'}/{'/'.join(under)}"


@lru_cache(maxsize=512)
def parse_unit(text: str) -> Unit:
    """`"GB/s"`, `"Gb/s"`, `"GB/s both"`, `"USD/GPU/h"`, `"FLOP/token"`, `"s^2"`, a noun or `""`.

    `both` after a rate means the sum of both directions of a link: half of it goes each way.
    Raises UnitError for a word that is not known.
    """
    words = text.strip()
    both = words.endswith(" both")
    factor, powers = (0.5 if both else 1.0), dict[str, Fraction]()
    for index, part in enumerate(words.removesuffix(" both").split("/")):
        sign = -1 if index else 1
        for word in part.split():
            name, _, power = word.partition("^")
            one, dimension = _atom(name, text)
            exponent = _power(power or "1", text) * sign
            factor *= one ** float(exponent)
            for base, n in dimension:
                powers[base] = powers.get(base, Fraction(0)) + n * exponent
    return Unit(words, factor, _sorted(powers))


_MOST_POWER = 9


def _power(written: str, text: str) -> Fraction:
    """An exponent; UnitError where it is none, or far from any that a unit has."""
    try:
        power = Fraction(written)
    except (ValueError, ZeroDivisionError):
        power = Fraction(_MOST_POWER + 1)
    if abs(power) > _MOST_POWER:
        raise UnitError(f"{written!r} is no power of a unit (in {text!r})", remedy="s^2 or m^3")
    return power


def _atom(word: str, text: str) -> tuple[float, Dimension]:
    try:
        return _ATOMS[word]
    except KeyError:
        raise UnitError(
            f"{word!r} is not a unit" + (f" (in {text!r})" if text != word else ""),
            remedy="GB, GiB, Gb/s, TFLOP/s, ms, h, tokens, USD/h, W, K, % ...; case matters",
        ) from None


_ATOMS = _atoms()

#: What the words in a name say about its unit: `kv_bytes_per_token` is B/token.
_NAMED = {
    "bytes": "B", "byte": "B", "s": "s", "tokens": "token", "token": "token", "flop": "FLOP",
    "usd": "USD", "w": "W", "j": "J", "k": "K", "kg": "kg", "m3": "m^3", "m": "m", "hz": "Hz",
}  # fmt: skip


@lru_cache(maxsize=2048)
def unit_of_name(name: str) -> Unit:
    """The base unit that a name promises: its last word, over every word after `per`.

    `decode_s` is s, `flop_per_param_token` is FLOP/token, `layers` is a pure number.
    """
    top, *below = name.split("_per_")
    # the k of a router's "top k" is a count, not kelvins
    over = "" if top.endswith("top_k") else _NAMED.get(top.rsplit("_", 1)[-1], "")
    under = [_NAMED[word] for part in below for word in part.split("_") if word in _NAMED]
    return parse_unit("/".join([over or "1", *under]) if under else over)


_WRITTEN = re.compile(
    r"\s*([+-]?(?:[0-9][0-9_,]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([kKMBT](?![A-Za-z/]))?\s*(.*?)\s*"
)


def parse_number(text: str, dimension: Dimension) -> tuple[float, Unit]:
    """A number with its unit as a person writes it: the value in base units, and the unit.

    `8k` tokens are 8,192, as context lengths are written; for all else `k` is a thousand, `M` a
    million, `B` a billion and `T` a trillion. A number that has a dimension needs its unit, except
    tokens, FLOP and USD. Raises UnitError.
    """
    match = _WRITTEN.fullmatch(_DOLLARS.sub(r"\1", text))
    if match is None:
        raise UnitError(f"{text!r} is not a number", remedy=_example(dimension))
    number, letter, symbol = float(re.sub("[_,]", "", match[1])), match[2] or "", match[3]
    if text.strip().startswith("$"):
        symbol = f"USD{symbol.replace(' ', '')}"
    if symbol in ("b", "t") and (not dimension or dimension in _SPOKEN):
        letter, symbol = symbol, ""  # "70b" are billions where no bits are wanted
    if not math.isfinite(number):
        raise UnitError(f"{text!r} is too large to compute with", remedy="a smaller one")
    if letter and not symbol and _ATOMS.get(letter, (0, NONE))[1] == dimension != NONE:
        letter, symbol = "", letter  # "80 B" are bytes where bytes are wanted, "10 K" a temperature
    is_binary = letter in ("k", "K") and dimension == _TOKEN
    number *= 2.0**10 if is_binary else _LETTERS[letter.upper()]
    if not symbol:
        if dimension and dimension not in _SPOKEN:
            raise UnitError(f"{text!r} has no unit", remedy=_example(dimension))
        return number, parse_unit(base_symbol(dimension))
    unit = _unit_written(symbol, dimension)
    if unit.dimension != dimension:
        wrong, right = _kind(unit.dimension), _kind(dimension)
        raise UnitError(f"{text!r} is {wrong}, not {right}", remedy=_example(dimension))
    if not math.isfinite(number * unit.factor):
        raise UnitError(f"{text!r} is too large to compute with", remedy="a smaller one")
    return number * unit.factor, unit


_DOLLARS = re.compile(r"^\s*\$\s*(.*)$")


def _unit_written(symbol: str, dimension: Dimension) -> Unit:
    """The unit of a word; `/s` and `/h` say over what, where the rest can only be one thing."""
    if symbol.startswith("/"):
        for spoken in ("tokens", "USD", "FLOP"):
            unit = parse_unit(f"{spoken}{symbol}")
            if unit.dimension == dimension:
                return unit
        return parse_unit(f"1{symbol}")
    return parse_unit(symbol)


_LETTERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_TOKEN = parse_unit("token").dimension
_SPOKEN = {_TOKEN, parse_unit("FLOP").dimension, parse_unit("USD").dimension}
_EXAMPLES = {
    parse_unit(symbol).dimension: f"e.g. {written}"
    for symbol, written in {
        "B": "80GB or 80GiB", "s": "200ms, 30s or 2h", "B/s": "3.35TB/s or '400 Gb/s'",
        "FLOP/s": "989TFLOP/s", "W": "700W", "USD/s": "2.5USD/h", "K": "10K", "kg": "0.5kg",
        "": "8, 70B or '50 %'", "token": "8k, 128k or 15T", "token/s": "30/s or 30tokens/s",
        "FLOP": "1e24 or 6ZFLOP", "USD": "30000 or 2.5MUSD", "1/s": "3/s", "J": "1MWh",
        "B/token": "320kB/token", "m": "30m", "FLOP/token": "140GFLOP/token",
    }.items()
}  # fmt: skip


def _example(dimension: Dimension) -> str:
    return _EXAMPLES.get(dimension, f"a number in {base_symbol(dimension) or 'no unit'}")


def _kind(dimension: Dimension) -> str:
    return f"a number in {base_symbol(dimension)}" if dimension else "a plain number"


def parse_bytes(text: str | int) -> int:
    """`"1.5GiB"`, `"500 MB"` or a plain number of bytes; ValueError says what would do."""
    return round(_parse(str(text), _SIZES, "a size such as 500MB or 1GiB"))


def parse_seconds(text: str | float) -> float:
    """`"500ms"`, `"2s"`, `"10m"`; a bare number is refused, for its unit would be a guess."""
    return _parse(str(text), _DURATIONS, "a duration with its unit, such as 500ms, 2s or 10m")


def parse_count(text: str | int) -> int:
    """A number of things: `"2M"`, `"400k"` or a plain number; ValueError says what would do."""
    return round(_parse(str(text), _COUNTS, "a number such as 400k or 2M"))


def _parse(text: str, units: dict[str, float], wanted: str) -> float:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None or not math.isfinite(value := float(match[1]) * factor):
        raise ValueError(f"{text!r} is not {wanted}")
    return value
