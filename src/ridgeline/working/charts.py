"""Charts for a page that stands alone: SVG that stretches, with its words beside it as HTML.

So letters stay as large as they are on a narrow screen. Whatever is told is escaped here. Colours
are classes `c0` to `c7` of the page's style; what a colour means stands in the legend too.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 1000, 300
_TICKS = 5
_FEW_DECADES = 4
_RIGHT = 0.75  # a word that begins here would run over the edge

Say = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Axis:
    """From where to where, and how a value on it is said; `unit` is that of the round ticks.

    Ticks are `least` apart at least, in that unit: 1 of things that are counted.
    """

    low: float
    high: float
    say: Say
    is_log: bool = False
    unit: float = 1.0
    least: float = 0.0

    def at(self, value: float) -> float:
        """Its place, 0 to 1; what is beyond an end is at it."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = log10(max(value, self.low)), log10(low), log10(high)
        return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        """Round values on it."""
        return self._decades() if self.is_log else self._steps()

    def _decades(self) -> list[float]:
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        parts = (1, 2, 5) if len(powers) <= _FEW_DECADES else (1,)
        every = [part * 10.0**power for power in powers for part in parts]
        return [one for one in every if self.low * 0.999 <= one <= self.high * 1.001]

    def _steps(self) -> list[float]:
        low, high = self.low / self.unit, self.high / self.unit
        rough = max((high - low) / _TICKS, self.least) or 1.0
        power = 10.0 ** floor(log10(rough))
        step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * 0.999)
        first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
        return [place * step * self.unit for place in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Curve:
    """A named line; its colour is the page's class of that number."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A line from bottom to top, with a word."""

    x: float
    word: str


def lines(
    title: str,
    curves: Sequence[Curve],
    x: Axis,
    y: Axis,
    *,
    note: str = "",
    marks: Sequence[Mark] = (),
    steps: bool = False,
) -> str:
    """Curves over a common axis; with `steps` a value holds until the next one."""
    shapes = [_path(curve, x, y, steps=steps) for curve in curves]
    shapes += [_mark(mark, x) for mark in marks]
    words = "".join(_word(mark, x) for mark in marks)
    legend = [(curve.name, curve.color) for curve in curves]
    hover = _hover(curves, x, y) if curves and _is_shared(curves) else ""
    return _figure(title, shapes, words, x, y, legend, note, hover)


def stacked(title: str, curves: Sequence[Curve], x: Axis, y: Axis, *, note: str = "") -> str:
    """Areas upon each other, the first at the bottom; a value holds from its x to the next one."""
    below = [0.0] * len(curves[0].y)
    shapes = []
    for curve in curves:
        above = [low + more for low, more in zip(below, curve.y, strict=True)]
        shapes.append(_area(curve, below, above, x, y))
        below = above
    legend = [(curve.name, curve.color) for curve in curves]
    return _figure(title, shapes, "", x, y, legend, note, _hover(curves, x, y))


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a row, and what it says when one points at it."""

    begins: float
    ends: float
    color: int
    told: str


def rows(
    title: str,
    named: Sequence[tuple[str, Sequence[Bar]]],
    x: Axis,
    legend: Sequence[tuple[str, int]],
    *,
    note: str = "",
) -> str:
    """Bars in rows, one below the other; rows of one name in a row have it once."""
    high = max(len(named), 1)
    shapes = []
    for place, (_, bars) in enumerate(named):
        top = HEIGHT * place / high
        for bar in bars:
            left, right = x.at(bar.begins) * WIDTH, x.at(bar.ends) * WIDTH
            shapes.append(
                f'<rect class="c{bar.color}" x="{left:.1f}" y="{top + HEIGHT / high * 0.12:.1f}" '
                f'width="{max(right - left, 0.8):.1f}" height="{HEIGHT / high * 0.76:.1f}">'
                f"<title>{escape(bar.told)}</title></rect>"
            )
    names = []
    for place, (name, _) in enumerate(named):
        if place == 0 or named[place - 1][0] != name:
            shapes.append(_rule(HEIGHT * place / high))
            names.append((name, 1 - place / high))
    labels = "".join(
        f'<span class="row" style="bottom:{at * 100:.2f}%">{escape(name)}</span>'
        for name, at in names
    )
    return _frame(title, shapes, labels, x, legend, note, "", f' style="height:{high * 9 + 20}px"')


def _figure(
    title: str,
    shapes: Sequence[str],
    words: str,
    x: Axis,
    y: Axis,
    legend: Sequence[tuple[str, int]],
    note: str,
    hover: str,
) -> str:
    grid = [_rule(HEIGHT * (1 - y.at(tick))) for tick in y.ticks]
    labels = "".join(
        f'<span class="y" style="bottom:{y.at(tick) * 100:.2f}%">{escape(y.say(tick))}</span>'
        for tick in y.ticks
    )
    return _frame(title, [*grid, *shapes], labels + words, x, legend, note, hover, "")


def _frame(
    title: str,
    shapes: Sequence[str],
    labels: str,
    x: Axis,
    legend: Sequence[tuple[str, int]],
    note: str,
    hover: str,
    style: str,
) -> str:
    ticks = _apart(x)
    across = "".join(
        f'<span style="left:{x.at(tick) * 100:.2f}%">{escape(x.say(tick))}</span>' for tick in ticks
    )
    keys = "".join(f'<span><i class="c{color}"></i>{escape(name)}</span>' for name, color in legend)
    data = f" data-hover='{hover}'" if hover else ""
    return (
        f'<figure class="card"><figcaption><h2>{escape(title)}</h2>'
        f'<p class="legend">{keys}</p></figcaption>'
        f'<div class="plot"{data}{style}>{labels}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">{"".join(shapes)}</svg></div>'
        f'<div class="xs">{across}</div>'
        f'<p class="quiet">{escape(note)}</p></figure>'
    )


def _apart(x: Axis) -> list[float]:
    """Ticks whose words do not run into each other on a narrow screen, nor over the edge."""
    kept: list[float] = []
    for tick in x.ticks:
        if x.at(tick) <= 0.97 and (not kept or x.at(tick) - x.at(kept[-1]) >= 0.17):
            kept.append(tick)
    return kept


def _rule(y: float) -> str:
    return f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _word(mark: Mark, x: Axis) -> str:
    at = x.at(mark.x)
    place = f"left:{at * 100:.2f}%" if at < _RIGHT else f"right:{(1 - at) * 100:.2f}%"
    side = "" if at < _RIGHT else " before"
    return f'<span class="mark{side}" style="{place}">{escape(mark.word)}</span>'


def _mark(mark: Mark, x: Axis) -> str:
    at = x.at(mark.x) * WIDTH
    return f'<line class="slo" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{HEIGHT}"/>'


def _points(xs: Sequence[float], ys: Sequence[float], x: Axis, y: Axis, *, steps: bool) -> str:
    path, told = [], ""
    for place, (across, up) in enumerate(zip(xs, ys, strict=True)):
        left, top = f"{x.at(across) * WIDTH:.1f}", f"{HEIGHT * (1 - y.at(up)):.1f}"
        if steps and place:
            path.append(f"H{left}")
        if not (steps and top == told):
            path.append(f"V{top}" if steps and place else f"{'L' if place else 'M'}{left},{top}")
        told = top
    return "".join(path)


def _path(curve: Curve, x: Axis, y: Axis, *, steps: bool) -> str:
    return f'<path class="line c{curve.color}" d="{_points(curve.x, curve.y, x, y, steps=steps)}"/>'


def _area(curve: Curve, below: Sequence[float], above: Sequence[float], x: Axis, y: Axis) -> str:
    """Its upper edge from left to right and its lower one back; both in steps."""
    ends = [*curve.x[1:], x.high]
    upper = _edge(curve.x, ends, above, x, y)
    lower = _edge(curve.x, ends, below, x, y)
    back = " L".join(f"{left:.1f},{top:.1f}" for left, top in reversed(lower))
    there = " L".join(f"{left:.1f},{top:.1f}" for left, top in upper)
    return f'<path class="area c{curve.color}" d="M{there} L{back}Z"/>'


def _edge(
    begins: Sequence[float], ends: Sequence[float], values: Sequence[float], x: Axis, y: Axis
) -> list[tuple[float, float]]:
    corners: list[tuple[float, float]] = []
    for begin, end, value in zip(begins, ends, values, strict=True):
        top = HEIGHT * (1 - y.at(value))
        if corners and corners[-1][1] == top:
            corners[-1] = (x.at(end) * WIDTH, top)
        else:
            corners += [(x.at(begin) * WIDTH, top), (x.at(end) * WIDTH, top)]
    return corners


def _is_shared(curves: Sequence[Curve]) -> bool:
    return all(len(curve.x) == len(curves[0].x) for curve in curves)


def _hover(curves: Sequence[Curve], x: Axis, y: Axis) -> str:
    """What the page's script says where one points: places, and what is there in words."""
    told = {
        "at": [round(x.at(value), 4) for value in curves[0].x],
        "x": [x.say(value) for value in curves[0].x],
        "rows": [[curve.name, [y.say(value) for value in curve.y]] for curve in curves],
    }
    return escape(json.dumps(told, separators=(",", ":")), quote=True)
