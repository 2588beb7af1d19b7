"""The pictures of a run and of a sweep, as PNG through matplotlib (extra `bench`)."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.serving.bench.goodput import Slo
from ridgeline.serving.bench.report import Report
from ridgeline.serving.bench.sweep import Sweep

INK, BLUE, ORANGE, GREY = "#22272e", "#1f6feb", "#d9730d", "#8b949e"


def check_place(path: Path) -> None:
    """Complain before a run, not after it. Raises SpecError."""
    if path.suffix != ".png":
        raise SpecError(
            f"{path} is no PNG file", where="--plot", remedy=str(path.with_suffix(".png"))
        )
    if not path.parent.is_dir():
        raise SpecError(f"the folder {path.parent} does not exist", where="--plot")


def draw_sweep(found: Sweep, path: Path) -> None:
    """Throughput and goodput over load above, latency over load below; the knee marked."""
    figure, (top, bottom) = _figure(2)
    loads = [level.setting.load or 0.0 for level in found.levels]
    _throughput(top, found.levels, loads)
    _latencies(bottom, found.levels, loads)
    for axes in (top, bottom):
        if found.best is not None:
            axes.axvline(found.best, color=GREY, linestyle="--", linewidth=1)
    if found.best is not None:
        label = f" {found.best:.3g} {found.unit} hold"
        top.text(found.best, 1.02, label, transform=top.get_xaxis_transform(), color=INK)
    bottom.set_xlabel(f"load, {found.unit}")
    first = found.levels[0].setting
    _save(figure, f"{first.model}: {first.sizes}", path)


def _throughput(axes: Any, levels: Sequence[Report], loads: Sequence[float]) -> None:
    tokens = [level.output_tokens_per_s for level in levels]
    axes.plot(loads, tokens, color=BLUE, marker="o")
    axes.set_ylabel("\u25cf  output tokens/s", color=BLUE)
    axes.set_ylim(bottom=0)
    right = axes.twinx()
    shares = [100 * level.goodput.share for level in levels]
    right.plot(loads, shares, color=ORANGE, marker="s")
    right.set_ylabel("\u25a0  goodput, % of requests", color=ORANGE)
    right.set_ylim(0, 105)
    right.spines["top"].set_visible(False)


def _latencies(axes: Any, levels: Sequence[Report], loads: Sequence[float]) -> None:
    curves = (
        ("TTFT p99", BLUE, "o", "-", [level.scheduled_ttft for level in levels], "p99"),
        ("TTFT p50", BLUE, "o", ":", [level.scheduled_ttft for level in levels], "p50"),
        ("TPOT p99", ORANGE, "s", "-", [level.tpot for level in levels], "p99"),
        ("TPOT p50", ORANGE, "s", ":", [level.tpot for level in levels], "p50"),
    )
    for name, color, marker, line, seen, percentile in curves:
        points = [(x, 1e3 * getattr(y, percentile)) for x, y in zip(loads, seen, strict=True) if y]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, color=color, marker=marker, linestyle=line, label=name)
    _objectives(axes, levels[0].slo or Slo())
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylabel("latency, ms (log)")
    if axes.get_lines():
        axes.legend(frameon=False, loc="upper left", ncols=2)


def _objectives(axes: Any, slo: Slo) -> None:
    for bound_s, color, name in ((slo.ttft_s, BLUE, "TTFT"), (slo.tpot_s, ORANGE, "TPOT")):
        if bound_s < inf:
            place = {"xy": (1, 1e3 * bound_s), "xycoords": ("axes fraction", "data")}
            axes.axhline(1e3 * bound_s, color=color, linewidth=0.8, alpha=0.6)
            axes.annotate(
                f"{name} objective", **place, ha="right", va="bottom", color=color, fontsize=8
            )


def draw_run(report: Report, path: Path) -> None:
    """The percentiles of one run, on one logarithmic scale of time."""
    figure, (axes,) = _figure(1)
    rows = (("E2E", report.e2e), ("ITL", report.itl), ("TPOT", report.tpot), ("TTFT", report.ttft))
    measured = [(name, seen) for name, seen in rows if seen]
    for place, (_, seen) in enumerate(measured):
        marks = ((seen.p50, "o"), (seen.p90, "s"), (seen.p99, "D"), (seen.max, "|"))
        axes.plot([1e3 * seen.p50, 1e3 * seen.max], [place, place], color=GREY, linewidth=1)
        for value, marker in marks:
            axes.plot(1e3 * value, place, marker, color=BLUE, markersize=8)
    for marker, name in (("o", "p50"), ("s", "p90"), ("D", "p99"), ("|", "max")):
        axes.plot([], [], marker, color=BLUE, label=name)
    axes.set_yticks(range(len(measured)), [name for name, _ in measured])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel("ms (log)")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.12))
    _save(figure, f"{report.setting.model}: {report.setting.loop}, {report.setting.sizes}", path)


def _figure(panels: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2 * panels + 0.6), layout="constrained", dpi=120)
    axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", color="#eaeef2")
        one.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, title: str, path: Path) -> None:
    figure.suptitle(title, color=INK, fontsize=11)
    figure.savefig(path)
