"""The picture of a sweep: a curve with its knee and what binds, a trade of two values, or bars."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.quantity import Quantity
from ridgeline.show import show, unit_for
from ridgeline.units import Unit
from ridgeline.working.edges import edge
from ridgeline.working.formula import short
from ridgeline.working.pictures import (
    BLUE,
    GREY,
    GROUNDS,
    INK,
    ORANGE,
    axis,
    beside,
    framed,
    plain_number,
    save,
)
from ridgeline.working.sweep import Column, Sweep
from ridgeline.working.words import phrase

Vector = NDArray[np.float64]

_FEW = 40
_MOST_GROUNDS = 9
_LEAST_ROOM = 34.0  # points of width that a name on the ground needs
_APART = 80.0  # pixels between two named points
_WIDE_LETTER, _SMALL_LETTER = 5.0, 4.6
RED = "#b42318"


def draw_sweep(found: Sweep, path: Path) -> None:
    """The value that is looked at over what was swept, or over another value."""
    figure, axes = framed()
    column = found.columns[found.headline]
    if not found.target.is_number:
        _bars(axes, found, column)
    else:
        _curve(axes, found, column)
    over = found.versus or short(found.target.name)
    title = f"{found.asked.topic.name}: {phrase(found.headline)} over {phrase(over)}"
    save(figure, axes, title, path)


def _curve(axes: Any, found: Sweep, column: Column) -> None:
    across, x_unit, x_name = _across(found)
    y_unit = _written_in(column.values, column.unit)
    x, y = across / x_unit.factor, column.values / y_unit.factor
    marker = "o" if len(x) <= _FEW else ""
    axes.plot(x, y, color=BLUE, marker=marker, markersize=3.5, linewidth=1.8, zorder=3)
    is_log = found.is_geometric and not found.versus
    if is_log:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(plain_number)
    axes.yaxis.set_major_formatter(plain_number)
    axes.set_xlim(*_ends(x, from_zero=bool(found.versus)))
    _from_zero(axes, y)
    axes.set_xlabel(axis(x_name, x_unit) + (" (log)" if is_log else ""))
    axes.set_ylabel(axis(found.headline, y_unit))
    if not found.versus:
        _grounds(axes, found, x, x_unit, is_log=is_log)
    else:
        _name_points(axes, found, x, y)
    _objective(axes, found, x, y, y_unit)
    _marks(axes, found, x, y)


def _across(found: Sweep) -> tuple[Vector, Unit, str]:
    """What stands on the x axis: the points, or the value that they are traded against."""
    if found.versus:
        column = found.columns[found.versus]
        return column.values, _written_in(column.values, column.unit), found.versus
    points = np.asarray(found.points, dtype=float)
    assert found.target.unit is not None, found.target.name
    return points, _written_in(points, found.target.unit), short(found.target.name)


def _ends(x: Vector, *, from_zero: bool) -> tuple[float, float]:
    low, high = float(np.nanmin(x)), float(np.nanmax(x))
    if not from_zero:
        return low, high
    return (0.0 if low >= 0 else low), high + 0.04 * (high - min(0.0, low))


def _from_zero(axes: Any, y: Vector) -> None:
    """Room above for the names of the grounds; from 0 where that does not flatten the curve."""
    finite = y[np.isfinite(y)]
    low, high = float(finite.min()), float(finite.max())
    bottom = 0.0 if 0 <= low < 0.6 * high else low - 0.06 * (high - low)
    top = high + 0.16 * ((high - bottom) or 1.0)
    if top > bottom:
        axes.set_ylim(bottom, top)


def _grounds(axes: Any, found: Sweep, x: Vector, unit: Unit, *, is_log: bool) -> None:
    """Shaded stretches in which the same binds, each with its name."""
    starts = [0, *found.changes]
    if len(starts) == 1 or len(starts) > _MOST_GROUNDS:
        return
    edges = [x[0], *(edge(found, i) / unit.factor for i in starts[1:]), x[-1]]
    for index, start in enumerate(starts):
        left, right = edges[index], edges[index + 1]
        axes.axvspan(left, right, color=GROUNDS[index % len(GROUNDS)], zorder=0, linewidth=0)
        name = found.changes.get(start) or _before(found, starts)
        low, high = (axes.transData.transform((end, 0))[0] for end in (left, right))
        room = (high - low) / axes.figure.dpi * 72
        if name and room > _LEAST_ROOM:
            middle = float(np.sqrt(left * right)) if is_log else (left + right) / 2
            _name_ground(axes, name, middle, room)


def _before(found: Sweep, starts: list[int]) -> str:
    """What bound before the first change: the same chooser's other option."""
    now, then = found.binds[starts[1]], found.binds[0]
    for owner, label in then.items():
        if now.get(owner) != label:
            return f"{label} ({short(owner)})"
    return ""


def _name_ground(axes: Any, name: str, middle: float, room: float) -> None:
    label, _, owner = name.partition(" (")
    if label.startswith("not "):
        label = f"unless {label.removeprefix('not ')}"
    letters = max(3, int(room / _WIDE_LETTER))
    text = label if len(label) <= letters else f"{label[: letters - 1]}…"
    owner = owner.removesuffix(")")
    if owner and len(owner) * _SMALL_LETTER <= room:
        text += f"\n{owner}"
    axes.text(
        middle, 0.985, text, transform=axes.get_xaxis_transform(), ha="center", va="top",
        fontsize=8, color=INK,
    )  # fmt: skip


def _name_points(axes: Any, found: Sweep, x: Vector, y: Vector) -> None:
    """Along a trade some points say what was swept there, where they are apart from each other."""
    marked = [found.knee.index, found.slo.last if found.slo else None]
    placed = [axes.transData.transform((x[i], y[i])) for i in marked if i is not None]
    for index in range(len(x)):
        at = axes.transData.transform((x[index], y[index]))
        is_apart = all(np.hypot(*(at - other)) > _APART for other in placed)
        if np.isfinite(at).all() and is_apart and at[0] > axes.bbox.x0 + _APART:
            placed.append(at)
            axes.annotate(
                found.point(index), (x[index], y[index]), xytext=(-5, 6), fontsize=7.5,
                textcoords="offset points", ha="right", va="bottom", color=GREY, zorder=4,
                annotation_clip=True,
            )  # fmt: skip


def _objective(axes: Any, found: Sweep, x: Vector, y: Vector, unit: Unit) -> None:
    """The line of the objective, and the last point within it."""
    slo = found.slo
    if slo is None:
        return
    if slo.name == found.headline:
        bound = slo.most.value / unit.factor
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, bound * 1.12))
        axes.axhline(bound, color=RED, linewidth=1.1, zorder=2)
        left = axes.get_xlim()[0]
        axes.annotate(
            f"objective: {show(slo.most)}", (left, bound), xytext=(6, 3), va="bottom",
            textcoords="offset points", color=RED, fontsize=8.5,
        )  # fmt: skip
        axes.axhspan(bound, axes.get_ylim()[1], color=RED, alpha=0.06, zorder=0, linewidth=0)
    if slo.last is None or slo.last == len(x) - 1:
        return
    if slo.name != found.headline:
        axes.axvspan(x[slo.last], axes.get_xlim()[1], color=RED, alpha=0.06, zorder=0, linewidth=0)
    axes.plot([x[slo.last]], [y[slo.last]], "D", color=RED, markersize=7, zorder=4)
    told = f"within the objective up to\n{found.point(slo.last)}"
    if slo.last == found.knee.index:
        return  # the knee's label says so
    rising = bool(y[np.isfinite(y)][0] < y[np.isfinite(y)][-1])
    beside(axes, (x[slo.last], y[slo.last]), told, is_rising=rising)


def _marks(axes: Any, found: Sweep, x: Vector, y: Vector) -> None:
    turn = found.knee.reason.split(", ")[-1].removesuffix(" here")
    for index, word in ((found.knee.index, "knee"), (found.knee.turn, turn)):
        if index is None:
            continue
        axes.axvline(x[index], color=GREY, linestyle="--", linewidth=1, zorder=1)
        axes.plot([x[index]], [y[index]], "o", color=ORANGE, markersize=8, zorder=4)
        text = f"{word}: {found.point(index)}\n{show(found.columns[found.headline].at(index))}"
        if found.slo is not None and found.slo.last == index:
            text += "\nlast within the objective"
        ends = y[np.isfinite(y)][[0, -1]]
        beside(axes, (x[index], y[index]), text, is_rising=bool(ends[0] < ends[1]))


def _bars(axes: Any, found: Sweep, column: Column) -> None:
    unit = _written_in(column.values, column.unit)
    heights = column.values / unit.factor
    places = np.arange(len(found.points))[::-1]
    axes.barh(places, np.nan_to_num(heights), color=BLUE, height=0.6)
    axes.set_yticks(places, [str(point) for point in found.points])
    axes.grid(visible=False)
    for place, index in zip(places, range(len(places)), strict=True):
        is_refused = index in found.refused
        told = f"refused: {found.refused[index]}" if is_refused else show(column.at(index))
        end = 0 if is_refused else heights[index]
        axes.text(end, place, f"  {told}", va="center", fontsize=8.5)
    axes.set_xlim(0, float(np.nanmax(heights)) * 1.25)
    axes.xaxis.set_major_formatter(plain_number)
    axes.set_xlabel(axis(found.headline, unit))
    axes.set_ylabel(phrase(found.target.name))


def _written_in(values: Vector, unit: Unit) -> Unit:
    return unit_for(Quantity(values[np.isfinite(values)], unit))
