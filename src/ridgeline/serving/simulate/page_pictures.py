"""The pictures of a simulation's page: over time, by latency, and request by request."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.shares import CAUSES, Bound, together, what_bound
from ridgeline.timeline import NS
from ridgeline.working.charts import Axis, Bar, Curve, Mark, lines, rows, stacked

_POINTS = 160  # of a distribution
_LETTERS = 13
_ROWS = 48  # requests that are drawn one by one
_CAUSES = {
    "queue": ("queue for a slot", 1), "kv": ("KV memory", 3), "compute": ("compute", 0),
    "bandwidth": ("bandwidth", 2), "fixed": ("fixed parts of steps", 4),
    "untold": ("steps of measured times", 6), "idle": ("idle", 5),
}  # fmt: skip
_PHASES = (
    ("at the gateway", 1), ("up to the first token", 2), ("answering", 0), ("not answered", 3),
)  # fmt: skip
_COLORS = (0, 1, 2, 3, 4, 6, 7, 5)
_TIMES = (
    ("Time to the first token", "ttft_s"),
    ("Time per token", "tpot_s"),
    ("Whole answer", "e2e_s"),
)
#: Units of time, each up to how much.
_UNITS = ((1.0, "s", 180.0), (60.0, "min", 10_800.0), (3600.0, "h", float("inf")))
Vector = NDArray[np.float64]


def latencies(
    drawn: Mapping[str, Outcome], slo: Mapping[str, Any] | None, is_told: Mapping[str, bool]
) -> list[str]:
    """How times are distributed, of the runs whose times say something."""
    some = {name: one for name, one in drawn.items() if is_told[name]}
    if not some:
        return []
    return [_distribution(title, name, some, slo) for title, name in _TIMES]


def _distribution(
    title: str, figure: str, drawn: Mapping[str, Outcome], slo: Mapping[str, Any] | None
) -> str:
    shares = np.linspace(0, 1, _POINTS)
    curves = []
    for place, (name, outcome) in enumerate(drawn.items()):
        values = getattr(outcome, figure)()
        values = values[values > 0]
        if len(values):
            # The smallest up to which each share of the answers is: a value that was there.
            at = np.sort(values)[np.minimum((shares * len(values)).astype(int), len(values) - 1)]
            curves.append(
                Curve(name or "all answers", at.tolist(), shares.tolist(), _COLORS[place % 8])
            )
    if not curves:
        return ""
    low, high = min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)
    marks = []
    if slo is not None and figure in slo:
        low, high = min(low, slo[figure]), max(high, slo[figure])
        marks = [Mark(slo[figure], f"SLO {_seconds(slo[figure])}")]
    x = Axis(*_decades(low, high), _seconds, is_log=True)
    return lines(
        title, curves, x, Axis(0, 1, _percent), marks=marks,
        note="share of answers that took no longer (log)",
    )  # fmt: skip


def _decades(low: float, high: float) -> tuple[float, float]:
    """From one round value to another: 1, 2 or 5 of a power of ten."""
    powers = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 2)
    rounds = [part * 10.0**power for power in powers for part in (1, 2, 5)]
    return max(one for one in rounds if one <= low), min(one for one in rounds if one > high)


def over_time(outcome: Outcome) -> list[str]:
    """Replicas, requests and caches."""
    series = outcome.series
    assert series is not None, "a run that was looked at"
    kinds = series.kinds
    looks = {kind: series.looks(kind) for kind in kinds}
    at_s = next(iter(looks.values())).at_s
    if len(at_s) < 2:
        return []
    x = _time(float(at_s[-1]))
    used = max(float(one.used.max()) for one in looks.values())
    total = {
        name: np.sum([one.seen[name] for one in looks.values()], axis=0)
        for name in ("starting", "ready", "draining", "queued", "running", "waiting")
    }
    return [
        _stack("Replicas", at_s, total, x, (("ready", 0), ("starting", 2), ("draining", 5))),
        _stack(
            "Requests", at_s, total, x, (("running", 0), ("waiting", 2), ("queued", 1)),
            note="running in engines, waiting in engines, queued at the gateway",
        ),
        lines(
            "KV cache in use",
            [
                Curve(kind, at_s.tolist(), looks[kind].used.tolist(), _COLORS[place % 8])
                for place, kind in enumerate(kinds)
            ],
            x, Axis(0, min(1.0, max(0.1, 1.2 * used)), _percent), steps=True,
            note="blocks that sequences hold, of those of replicas that are ready or drain",
        ),
    ]  # fmt: skip


def bounds(outcome: Outcome) -> list[str]:
    """What bound when, in all and of each kind of replicas where there are several."""
    series = outcome.series
    assert series is not None, "a run that was looked at"
    parts = {kind: what_bound(outcome, kind) for kind in series.kinds}
    every = together(list(parts.values()))
    if len(every.at_s) < 2:
        return []
    x = _time(float(every.at_s[-1]))
    own = [_bound(f"What bound {kind}", one, x) for kind, one in parts.items()]
    return [_bound("What bound the engines", every, x), *(own if len(own) > 1 else [])]


def _stack(
    title: str, at_s: Vector, total: Mapping[str, NDArray[np.int64]], x: Axis,
    named: Sequence[tuple[str, int]], note: str = "",
) -> str:  # fmt: skip
    curves = [Curve(name, at_s.tolist(), total[name].tolist(), color) for name, color in named]
    high = float(np.max(np.sum([total[name] for name, _ in named], axis=0)))
    return stacked(title, curves, x, Axis(0, max(high, 1.0), _count, least=1.0), note=note)


def _bound(title: str, bound: Bound, x: Axis) -> str:
    """Shares of the ready time of each stretch."""
    whole = np.sum([bound.by_s[cause] for cause in CAUSES], axis=0)
    curves = [
        Curve(
            _CAUSES[cause][0],
            bound.at_s[:-1].tolist(),
            (bound.by_s[cause] / np.where(whole > 0, whole, 1.0)).tolist(),
            _CAUSES[cause][1],
        )
        for cause in CAUSES
        if cause != "untold" or bound.by_s[cause].any()
    ]
    told = ", ".join(
        f"{_CAUSES[cause][0]} {share:.0%}"
        for cause, share in sorted(bound.shares.items(), key=lambda one: -one[1])
        if share >= 0.005
    )
    return _wide(stacked(title, curves, x, Axis(0, 1, _percent), note=f"in all: {told}"))


def _wide(figure: str) -> str:
    return figure.replace('class="card"', 'class="card full"', 1)


def _time(lasts_s: float) -> Axis:
    """From the begin, in the unit that people would take."""
    unit, name = next((unit, name) for unit, name, upto in _UNITS if lasts_s < upto)
    return Axis(0.0, lasts_s, lambda value: f"{value / unit:.3g} {name}", unit=unit)


def requests(outcome: Outcome) -> str:
    """Requests in a row, around the moment with the most in flight, each with its phases."""
    columns = outcome.columns
    if not outcome.requests:
        return ""
    order = np.argsort(columns["at_ns"], kind="stable")
    at_ns, done_ns = columns["at_ns"][order], np.sort(columns["done_ns"])
    flying = np.arange(1, len(order) + 1) - np.searchsorted(done_ns, at_ns, side="right")
    busiest = int(np.argmax(flying))
    first = max(0, min(busiest - _ROWS // 2, len(order) - _ROWS))
    some = order[first : first + _ROWS]
    names = np.array(outcome.names)
    replicas = names[columns["replica"][some]]
    some = some[np.argsort(replicas, kind="stable")]
    begin_ns = int(columns["at_ns"][some].min())
    x = _time((int(columns["done_ns"][some].max()) - begin_ns) / NS)
    drawn = [
        (
            _short(str(names[columns["replica"][one]]) or "none"),
            _phases(outcome, int(one), begin_ns),
        )
        for one in some.tolist()
    ]
    note = f"{len(some)} in a row, from {_seconds(begin_ns / NS)} on, where most were in flight"
    return _wide(rows("Requests, one by one", drawn, x, _PHASES, note=note))


def _phases(outcome: Outcome, row: int, begin_ns: int) -> list[Bar]:
    """Where one request's time went."""
    columns = outcome.columns
    at, sent, first, done = (
        (int(columns[name][row]) - begin_ns) / NS if columns[name][row] >= 0 else None
        for name in ("at_ns", "sent_ns", "first_ns", "done_ns")
    )
    assert at is not None, "asked"
    assert done is not None, "ended"
    number, prompt, said = (
        int(columns[name][row]) for name in ("number", "prompt_tokens", "said_tokens")
    )
    told = f"request {number}: {prompt:,} prompt tokens, {said:,} said"
    if sent is None:
        return [Bar(at, done, 3, f"{told}; never sent, {_seconds(done - at)}")]
    bars = [Bar(at, sent, 1, f"{told}; {_seconds(sent - at)} at the gateway")]
    ends = done if first is None else first
    is_lost = 3 if first is None else 2
    bars.append(Bar(sent, ends, is_lost, f"{told}; {_seconds(ends - sent)} up to a first token"))
    if first is not None:
        bars.append(Bar(first, done, 0, f"{told}; {_seconds(done - first)} answering"))
    return [bar for bar in bars if bar.ends > bar.begins]


def _short(name: str) -> str:
    """Its end, which tells replicas apart."""
    return name if len(name) <= _LETTERS else f"…{name[1 - _LETTERS :]}"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"


def _count(value: float) -> str:
    return f"{value:,.10g}"
