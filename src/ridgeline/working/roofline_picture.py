"""The roofline of a machine with the workload of an answer on it.

An answer can be drawn where one of its values is `ridge_flop_per_byte`, a rate of arithmetic over a
rate of reading. Its other values in FLOP/B are the workload; `limit_…` is a wall, not a point.
"""

import math
from pathlib import Path
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.quantity import Quantity
from ridgeline.show import show, unit_for
from ridgeline.topics import Asked
from ridgeline.working.formula import short
from ridgeline.working.pictures import (
    BLUE,
    GREY,
    GROUNDS,
    INK,
    ORANGE,
    framed,
    plain_number,
    save,
)
from ridgeline.working.words import phrase

RIDGE = "ridge_flop_per_byte"
_LIMIT = "limit"
_SHARES = (0.25, 0.4, 0.55, 0.7)  # of the slope, where its name may stand
_NEAR = 3.0  # labels of points closer than this factor would touch


def roof(asked: Asked) -> tuple[Quantity, Quantity]:
    """The two rates of the machine; SpecError where an answer has no roofline."""
    ridge = asked.answer.values.get(RIDGE)
    rates = ridge.inputs if ridge is not None and ridge.op == "/" else ()
    if len(rates) != 2:
        raise SpecError(
            "draws a sweep, a sensitivity, or a roofline, and this answer has no roofline",
            where="--plot",
            remedy="--sweep NAME=a:b --plot FILE.svg",
        )
    return rates[0], rates[1]


def draw_roofline(asked: Asked, path: Path) -> None:
    """Attainable FLOP/s over intensity, both logarithmic, with the workload's points."""
    peak, bandwidth = roof(asked)
    ridge = asked.answer.values[RIDGE]
    values = {
        name: value
        for name, value in asked.answer.values.items()
        if name != RIDGE and value.dimension == ridge.dimension and math.isfinite(value.value)
    }
    figure, axes = framed(4.6)
    unit = unit_for(peak)
    everywhere = [float(value.value) for value in (*values.values(), ridge)]
    low, high = min(everywhere) / 4, max(everywhere) * 6
    ends = [low, float(ridge.value), high]
    rates = [min(float(peak.value), float(bandwidth.value) * x) / unit.factor for x in ends]
    axes.plot(ends, rates, color=INK, linewidth=2, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(rates[0] / 2, rates[-1] * 3)
    _grounds(axes, ridge, (low, high))
    points = [float(value.value) for value in values.values()]
    _names(axes, peak, bandwidth, ridge, unit.factor, (low, high), points)
    _workload(axes, values, (peak, bandwidth), unit.factor)
    axes.xaxis.set_major_formatter(plain_number)
    axes.yaxis.set_major_formatter(plain_number)
    axes.set_xlabel("intensity, FLOP/B (log)")
    axes.set_ylabel(f"attainable, {unit.symbol} (log)")
    save(figure, axes, f"{asked.topic.name}: {_row(peak)}", path)


def _row(peak: Quantity) -> str:
    """What machine it is: the row of the catalog, and the rate's type."""
    row, _, field = peak.name.rpartition(".")
    told = field.removesuffix("_flop_per_s")
    return f"{row}, {told}" if row else told


def _grounds(axes: Any, ridge: Quantity, ends: tuple[float, float]) -> None:
    for left, right, ground, name in (
        (ends[0], float(ridge.value), GROUNDS[0], "memory binds"),
        (float(ridge.value), ends[1], GROUNDS[1], "arithmetic binds"),
    ):
        axes.axvspan(left, right, color=ground, zorder=0, linewidth=0)
        axes.text(
            math.sqrt(left * right), 0.975, name, transform=axes.get_xaxis_transform(),
            ha="center", va="top", fontsize=8.5, color=INK,
        )  # fmt: skip


def _names(
    axes: Any,
    peak: Quantity,
    bandwidth: Quantity,
    ridge: Quantity,
    factor: float,
    ends: tuple[float, float],
    points: list[float],
) -> None:
    """The roof's two slopes and its ridge, told beside them."""
    top = float(peak.value) / factor
    axes.annotate(
        show(peak), (ends[1], top), xytext=(-6, 5), textcoords="offset points", ha="right",
        fontsize=8.5, color=INK,
    )  # fmt: skip
    middle = _clear_place(ends[0], float(ridge.value), points)
    start, far = (
        axes.transData.transform((x, float(bandwidth.value) * x / factor))
        for x in (middle, middle * 2)
    )
    angle = math.degrees(math.atan2(far[1] - start[1], far[0] - start[0]))
    axes.annotate(
        show(bandwidth), (middle, float(bandwidth.value) * middle / factor), xytext=(-4, 6),
        textcoords="offset points", ha="center", va="bottom", rotation=angle,
        rotation_mode="anchor", fontsize=8.5, color=INK,
    )  # fmt: skip
    axes.axvline(float(ridge.value), color=GREY, linestyle="--", linewidth=1, zorder=1)
    axes.annotate(
        f"ridge {show(ridge)}", (float(ridge.value), axes.get_ylim()[0]), xytext=(5, 6),
        textcoords="offset points", fontsize=8.5, color=INK,
    )  # fmt: skip


def _clear_place(low: float, high: float, points: list[float]) -> float:
    """A place on the slope that is far from every point."""
    places = [low ** (1 - share) * float(high**share) for share in _SHARES]

    def clear(x: float) -> float:
        return min((abs(math.log(x / one)) for one in points), default=0.0)

    best: float = max(places, key=clear)
    return best


def _workload(
    axes: Any, values: dict[str, Quantity], rates: tuple[Quantity, Quantity], factor: float
) -> None:
    """The points, by rising intensity; labels of neighbours stand on either side of the roof."""
    peak, bandwidth = (float(rate.value) for rate in rates)
    before = 0.0
    above = True
    for name, value in sorted(values.items(), key=lambda pair: float(pair[1].value)):
        x = float(value.value)
        y = min(peak, bandwidth * x) / factor
        axes.plot([x, x], [axes.get_ylim()[0], y], color=GREY, linewidth=0.8, zorder=2)
        is_wall = name.startswith(_LIMIT)
        look = {"markersize": 14, "markeredgewidth": 3} if is_wall else {"markersize": 8}
        color = ORANGE if is_wall else BLUE
        axes.plot([x], [y], "|" if is_wall else "o", color=color, zorder=4, **look)
        above = before > 0 and x / before < _NEAR and not above
        before = x
        word = phrase(short(name).removesuffix("_flop_per_byte")).strip()
        _label(axes, (x, y), f"{word}: {show(value)}", above=above)


def _label(axes: Any, at: tuple[float, float], text: str, *, above: bool) -> None:
    left, right = (axes.transData.transform((end, 1))[0] for end in axes.get_xlim())
    is_right = (axes.transData.transform(at)[0] - left) / (right - left) > 0.72
    side = -1 if above or is_right else 1
    axes.annotate(
        text, at, xytext=(9 * side, 5 if above else -6), textcoords="offset points",
        ha="left" if side > 0 else "right", va="bottom" if above else "top", fontsize=8.5,
        color=INK, zorder=5,
        bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.8},
    )  # fmt: skip
