"""Sizes and durations as people write them, into base units: bytes and seconds.

Used by the spec and the command line. Decimal (GB) and binary (GiB) sizes are told apart.
"""

import math
import re

_SIZES = {
    "": 1.0, "b": 1.0,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str | int) -> int:
    """`"1.5GiB"`, `"500 MB"` or a plain number of bytes; ValueError says what would do."""
    return round(_parse(str(text), _SIZES, "a size such as 500MB or 1GiB"))


def parse_seconds(text: str | float) -> float:
    """`"500ms"`, `"2s"`, `"10m"`; a bare number is refused, for its unit would be a guess."""
    return _parse(str(text), _DURATIONS, "a duration with its unit, such as 500ms, 2s or 10m")


def _parse(text: str, units: dict[str, float], wanted: str) -> float:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None or not math.isfinite(value := float(match[1]) * factor):
        raise ValueError(f"{text!r} is not {wanted}")
    return value
