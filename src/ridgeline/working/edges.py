"""Where exactly what binds changes between two points of a sweep: the edge is asked for, halved."""

from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.working.binding import binding_at, choices
from ridgeline.working.sweep import Sweep, ask_at

_HALVINGS = 24


def edge(found: Sweep, index: int) -> float:
    """Where between the point before and this one it binds as it does here.

    Halfway, where no single question can tell.
    """
    low, high = float(found.points[index - 1]), float(found.points[index])
    whole = all(float(one).is_integer() for one in found.points)
    here = found.binds[index]
    if _binds(found, high) != here or _binds(found, low) == here:
        return (low + high) / 2
    for _ in range(_HALVINGS):
        middle = float((low + high) // 2) if whole else (low + high) / 2
        if middle in (low, high):
            break
        if _binds(found, middle) == here:
            high = middle
        else:
            low = middle
    return high if whole else (low + high) / 2


def _binds(found: Sweep, point: float) -> Any:
    try:
        asked = ask_at(found, point)
    except RidgelineError:
        return None
    return binding_at(choices(next(iter(asked.answer.values.values()))), 0)
