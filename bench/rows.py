"""One row format for every benchmark: what was measured, beside what, and whether it suffices.

Law of this file: a ratio is always ours / reference as measured, never turned round; the row says
which direction is good. A result without its hardware, versions, command and date is not written.
Every file in bench/ builds `Row`s and ends with `report`.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


class Better(StrEnum):
    """Which direction of a measured value is good."""

    MORE = "more"
    LESS = "less"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case, beside a reference (a peer, or a floor) where there is one.

    `ratio` is ours / reference; of paired measurements it is the median of the pairs' ratios, and
    `ratio_low`, `ratio_high` are the least and the most of them. `target` bounds the ratio, or
    `ours` itself where it is `absolute`: from below where more is better, from above where less
    is. `ok` is None where there is no target.
    """

    case: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    target: float | None = None
    better: Better = Better.MORE
    ok: bool | None = None
    absolute: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON writes it."""
        return asdict(self)


def measured(case: str, unit: str, value: float, *, better: Better = Better.MORE) -> Row:
    """A row with nothing beside it."""
    return Row(case, unit, value, better=better)


def compared(
    case: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    target: float | None = None,
    better: Better = Better.MORE,
) -> Row:
    """A row from measurements taken in pairs: `ours[i]` and `peer[i]` in the same round.

    The median of the pairs' ratios is robust to a round in which the machine drifted; the ratio
    of the medians is not. Raises ValueError when the two are not pairs or a peer's value is 0.
    """
    if not ours or len(ours) != len(peer):
        raise ValueError(f"{case}: {len(ours)} and {len(peer)} measurements do not make pairs")
    if 0 in peer:
        raise ValueError(f"{case}: a reference of 0 {unit} has no ratio")
    ratios = [mine / theirs for mine, theirs in zip(ours, peer, strict=True)]
    ratio = median(ratios)
    return Row(
        case,
        unit,
        median(ours),
        median(peer),
        ratio,
        min(ratios),
        max(ratios),
        target,
        better,
        meets(ratio, target, better),
    )


def bounded(row: Row, target: float) -> Row:
    """The row with a target for our own value, whatever stands beside it."""
    return replace(row, target=target, absolute=True, ok=meets(row.ours, target, row.better))


def meets(ratio: float, target: float | None, better: Better) -> bool | None:
    """Whether a ratio (or a value) reaches its target; None without one."""
    if target is None:
        return None
    return ratio >= target if better is Better.MORE else ratio <= target


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a benchmark: its rows, and all that is needed to judge or repeat them.

    `notes` are sentences a reader must see beside the numbers (noise, what was left out);
    `details` is whatever else the benchmark measured, JSON-ready.
    """

    bench: str
    rows: Sequence[Row]
    quick: bool
    notes: Sequence[str] = ()
    details: dict[str, Any] = field(default_factory=dict)
    peer_versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The run as its results file keeps it."""
        return {
            "bench": self.bench,
            "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": shlex.join(["python", *sys.argv]),
            "quick": self.quick,
            "hardware": hardware(),
            "versions": versions() | self.peer_versions,
            "notes": list(self.notes),
            "rows": [row.to_dict() for row in self.rows],
            "details": self.details,
        }


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name_and_flags(cpuinfo: str) -> tuple[str, list[str]]:
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    fields = {key.strip(): value.strip() for key, _, value in lines}
    telling = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
    flags = set(fields.get("flags", "").split())
    return fields.get("model name", platform.processor()), [f for f in telling if f in flags]


def hardware() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpuinfo = Path("/proc/cpuinfo")
    name, flags = _cpu_name_and_flags(cpuinfo.read_text() if cpuinfo.exists() else "")
    return {
        "cpu": name or platform.machine(),
        "cpu_flags": flags,
        "cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """The versions in this environment that a number may depend on."""
    found = {"python": platform.python_version()}
    for name in ("ridgeline", "torch", "numpy", "aiohttp", "tokenizers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def quantity(value: float | None) -> str:
    """A number as the table shows it: three or four telling digits."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _ratio_text(row: Row) -> str:
    if row.ratio is None:
        return ""
    alone = row.ratio_low == row.ratio_high or row.ratio_low is None or row.ratio_high is None
    spread = "" if alone else f" ({row.ratio_low:.2f}-{row.ratio_high:.2f})"
    return f"{row.ratio:.2f}x{spread}"


def _target_text(row: Row) -> str:
    if row.target is None:
        return ""
    sign = ">=" if row.better is Better.MORE else "<="
    return f"{sign} {quantity(row.target)}" if row.absolute else f"{sign} {row.target:.2f}x"


def _verdict(row: Row) -> Text:
    if row.ok is None:
        return Text("")
    return Text("ok", style="green") if row.ok else Text("short", style="bold red")


def table(rows: Sequence[Row], *, ours: str = "ours", peer: str = "peer") -> Table:
    """The rows for a terminal; columns that every row leaves empty are left out."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("case", overflow="fold")
    shown.add_column(ours, justify="right")
    with_peer = any(row.peer is not None for row in rows)
    with_target = any(row.target is not None for row in rows)
    for heading in ([peer, "ratio"] if with_peer else []) + (["target", ""] if with_target else []):
        shown.add_column(heading, justify="right")
    shown.add_column("unit")
    for row in rows:
        beside: list[str | Text] = [quantity(row.peer), _ratio_text(row)] if with_peer else []
        wanted: list[str | Text] = [_target_text(row), _verdict(row)] if with_target else []
        shown.add_row(row.case, quantity(row.ours), *beside, *wanted, row.unit)
    return shown


def add_options(parser: argparse.ArgumentParser) -> None:
    """The two options every benchmark has."""
    parser.add_argument("--quick", action="store_true", help="a short run: fewer cases, one round")
    parser.add_argument("--json", action="store_true", help="print the results file, not a table")


def say(line: str) -> None:
    """Progress goes to standard error, so that standard output holds results only."""
    print(line, file=sys.stderr, flush=True)


def report(record: Record, *, as_json: bool, ours: str = "ours", peer: str = "peer") -> int:
    """Prints the run; the exit status is 1 when a row missed its target, else 0."""
    if as_json:
        print(json.dumps(record.to_dict(), indent=1))
    else:
        console = Console(highlight=False)
        console.print(table(record.rows, ours=ours, peer=peer))
        told = hardware()
        console.print(f"\n{told['cpu']}, {told['cores']} cores, {time.strftime('%Y-%m-%d')}")
        for note in record.notes:
            console.print(note, markup=False)
    return 1 if any(row.ok is False for row in record.rows) else 0
