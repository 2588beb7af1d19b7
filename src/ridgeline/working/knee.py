"""The knee of a curve: the point farthest from the line through its ends, both axes 0 to 1.

Source: Satopaa et al. 2011 (Kneedle), with the whole curve as one knee to be found.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LEAST_DISTANCE = 0.1
_MOST_OPPOSITE = 0.3
_LEAST_POINTS = 5
_FLAT = 1e-9


@dataclass(frozen=True, slots=True)
class Knee:
    """Where it is (an index of the points), or None with the reason; a best point of a valley."""

    index: int | None
    reason: str = ""
    turn: int | None = None


def knee(x: NDArray[np.float64], y: NDArray[np.float64]) -> Knee:
    """The knee of y over x that never falls; points that are not finite are left out."""
    kept = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(kept) < _LEAST_POINTS:
        return Knee(None, f"under {_LEAST_POINTS} points")
    across, up = x[kept], y[kept]
    span = across[-1] - across[0]
    if span <= 0 or np.any(np.diff(across) < -_FLAT * span):
        return Knee(None, "the points do not rise")
    height = up.max() - up.min()
    if height <= _FLAT * max(1e-300, float(np.abs(up).max())):
        return Knee(None, "it is flat")
    steps = np.diff(up)
    if np.any(steps > _FLAT * height) and np.any(steps < -_FLAT * height):
        return _turning(kept, up)
    return _of_monotone(kept, across, up)


def _turning(kept: NDArray[np.int64], up: NDArray[np.float64]) -> Knee:
    """A curve that rises and falls has no knee; where it has one inner extreme, that is told."""
    for found, word in ((int(up.argmin()), "lowest"), (int(up.argmax()), "highest")):
        if 0 < found < len(up) - 1:
            return Knee(None, f"it turns, {word} here", int(kept[found]))
    return Knee(None, "it rises and falls")


def _of_monotone(
    kept: NDArray[np.int64], across: NDArray[np.float64], up: NDArray[np.float64]
) -> Knee:
    chord = (across - across[0]) / (across[-1] - across[0])
    distance = (up - up[0]) / (up[-1] - up[0]) - chord
    most, least = float(distance.max()), float(distance.min())
    side = 1 if most >= -least else -1
    far, opposite = max(most, -least), min(most, -least)
    if far < _LEAST_DISTANCE:
        return Knee(None, "it is close to a straight line")
    if opposite > _MOST_OPPOSITE * far:
        return Knee(None, "it bends both ways")
    return Knee(int(kept[int((side * distance).argmax())]))
