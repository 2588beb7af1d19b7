"""The picture of a tornado."""

import math
from pathlib import Path
from typing import Any

from ridgeline.show import compact, show, unit_for
from ridgeline.units import Unit
from ridgeline.working.formula import short
from ridgeline.working.pictures import BLUE, INK, ORANGE, axis, framed, plain_number, save
from ridgeline.working.sensitivity import Sensitivity, Swing
from ridgeline.working.words import phrase

_MOST_SWINGS = 14


def draw_sensitivity(found: Sensitivity, path: Path) -> None:
    """The tornado: bars from the value at an input's low end to that at its high end."""
    swings = found.swings[:_MOST_SWINGS]
    figure, axes = framed(height=1.6 + 0.34 * max(3, len(swings)))
    unit = unit_for(found.value)
    now = float(found.value.value) / unit.factor
    for place, one in enumerate(reversed(swings)):
        _bar(axes, place, one, now, unit)
    axes.axvline(now, color=INK, linewidth=1)
    axes.set_yticks(range(len(swings)), [short(one.name) for one in reversed(swings)])
    low, high = axes.get_xlim()
    axes.set_xlim(low - 0.16 * (high - low), high + 0.16 * (high - low))
    axes.xaxis.set_major_formatter(plain_number)
    axes.set_xlabel(axis(found.name, unit))
    axes.plot([], [], "s", color=BLUE, label="input lower")
    axes.plot([], [], "s", color=ORANGE, label="input higher")
    axes.grid(visible=False)
    axes.legend(
        frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8.5, borderpad=0
    )
    title = f"{found.asked.topic.name}: {phrase(found.name)} is {show(found.value)}"
    save(figure, axes, title, path)


def _bar(axes: Any, place: int, one: Swing, now: float, unit: Unit) -> None:
    for end, color in ((one.low, BLUE), (one.high, ORANGE)):
        if end.result is None or not math.isfinite(end.result.value):
            continue
        there = float(end.result.value) / unit.factor
        axes.barh(place, there - now, left=now, color=color, height=0.62)
        if there != now:
            side = 1 if there > now else -1
            axes.annotate(
                compact(end.input), (there, place),
                xytext=(4 * side, 0), textcoords="offset points",
                ha="left" if side > 0 else "right", va="center", fontsize=7.5, color=INK,
            )  # fmt: skip
