"""The points of a sweep from what a person writes: `1k:128k`, `1:64:x2`, `1,8,64`, `bf16,fp8`."""

import math

from ridgeline.errors import SpecError, UnitError
from ridgeline.units import Dimension, parse_number

POINTS = 33
MOST_POINTS = 100_000
#: From this ratio of ends on, points are spaced by a factor and not by a step.
GEOMETRIC = 8.0
_WHERE = "--sweep"


def span(written: str, dimension: Dimension, *, whole: bool) -> tuple[list[float], bool]:
    """The points in base units, rising as written, and whether they are spaced by a factor.

    `whole` numbers are rounded, and none comes twice. Raises SpecError and UnitError.
    """
    if ":" in written:
        points, geometric = _range(written, dimension)
    else:
        points = _numbers(written.split(","), dimension)
        geometric = _spaced_by_factor(points)
    if whole:
        points = [float(round(point)) for point in points]
    return list(dict.fromkeys(points)), geometric


def _range(written: str, dimension: Dimension) -> tuple[list[float], bool]:
    low_text, high_text, *rest = written.split(":")
    if len(rest) > 1:
        raise SpecError(f'"{written}" has too many parts', where=_WHERE, remedy="NAME=a:b[:step]")
    factor = rest[0].strip().lower() if rest else ""
    if factor.startswith(("x", "*")):
        low, high = _numbers([low_text, high_text], dimension)
        return _by_factor(low, high, _factor(factor[1:])), True
    low, high, *step = _numbers([low_text, high_text, *rest], dimension)
    if step:
        return _by_step(low, high, step[0]), False
    if low > 0 and high / low >= GEOMETRIC:
        ratio = (high / low) ** (1 / (POINTS - 1))
        return [*(low * ratio**i for i in range(POINTS - 1)), high], True
    if low == high:
        return [low], False
    return [low + (high - low) * i / (POINTS - 1) for i in range(POINTS)], False


def _numbers(texts: list[str], dimension: Dimension) -> list[float]:
    """Numbers with units; one that has none takes that of the last: `40:160GB`."""
    symbols = [text.strip().lstrip("+-0123456789.,_eE ") for text in texts]
    last = next((symbol for symbol in reversed(symbols) if symbol), "")
    found = []
    for text in texts:
        try:
            found.append(parse_number(text, dimension)[0])
        except UnitError as error:
            try:
                found.append(parse_number(f"{text}{last}", dimension)[0])
            except UnitError:
                raise UnitError(error.problem, where=_WHERE, remedy=error.remedy) from None
    return found


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 < factor < math.inf:
        raise SpecError(f'"x{text}" is no factor above 1', where=_WHERE, remedy="a:b:x2")
    return factor


def _by_factor(low: float, high: float, factor: float) -> list[float]:
    if not 0 < low <= high:
        raise SpecError("a factor needs 0 < a <= b", where=_WHERE, remedy="1:64:x2")
    steps = math.floor(math.log(high / low) / math.log(factor) * (1 + 1e-9))
    _check_number(steps)
    points = [low * factor**i for i in range(steps + 1)]
    return points if math.isclose(points[-1], high) else [*points, high]


def _by_step(low: float, high: float, step: float) -> list[float]:
    if step <= 0 or high < low:
        raise SpecError("a step needs a <= b and a step above 0", where=_WHERE, remedy="1:64:4")
    steps = math.floor((high - low) / step * (1 + 1e-9))
    _check_number(steps)
    points = [low + step * i for i in range(steps + 1)]
    return points if math.isclose(points[-1], high) else [*points, high]


def _check_number(steps: int) -> None:
    if steps > MOST_POINTS:
        raise SpecError(f"{steps:,} points are too many", where=_WHERE, remedy="a larger step")


def _spaced_by_factor(points: list[float]) -> bool:
    low, high = min(points), max(points)
    return len(points) > 1 and low > 0 and high / low >= GEOMETRIC
