"""From runs through and beside a gateway to the rows of `bench/gateway.py`, with their targets.

Law of this file: what a gateway adds is a difference to direct runs of the same minute, never a
time of its own; a difference below what can be told apart counts as that least one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gateway_load import Measured
from rows import Better, Row, bounded, compared, measured

LEAST_ADDED_S = 10e-6  # less is the noise of two direct runs
RUST = ("sglang-router", "vllm-router", "smg")
MOST_ADDED_P50 = {"litellm": 1 / 4, **dict.fromkeys(RUST, 8.0)}
MOST_ADDED_P99 = {("litellm", "c64"): 1 / 5}
LEAST_RATE = {"litellm": 5.0}
MOST_SHIFT_MS = 1.0
MOST_GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class Added:
    """A run through a gateway between two without it; `cpu_s` is what its processes used."""

    before: Measured
    through: Measured
    after: Measured
    cpu_s: float

    def added_s(self, what: str) -> float:
        """What of a time (`p50_s`, ...) the gateway is answerable for."""
        direct = (getattr(self.before, what) + getattr(self.after, what)) / 2
        return max(LEAST_ADDED_S, float(getattr(self.through, what)) - float(direct))

    @property
    def requests_per_core_s(self) -> float:
        """Requests for a second of its own CPU time."""
        return self.through.requests / max(self.cpu_s, 1e-3)

    def to_dict(self) -> dict[str, Any]:
        """For the results file."""
        return asdict(self)

    def __str__(self) -> str:
        through = self.through
        if through.transit_p99_s:
            return (
                f"shift p99 +{1e3 * self.added_s('shift_p99_s'):.2f} ms"
                f"   transit p50 +{1e3 * self.added_s('transit_p50_s'):.2f}"
                f"  p99 +{1e3 * self.added_s('transit_p99_s'):.2f} ms   cpu {self.cpu_s:.2f} s"
            )
        return (
            f"p50 +{1e3 * self.added_s('p50_s'):.2f} ms   p99 +{1e3 * self.added_s('p99_s'):.2f} ms"
            f"   {through.requests / through.wall_s:.0f} req/s"
            f"   {self.requests_per_core_s:.0f} req/core-s"
        )


def gateway_rows(
    taken: Mapping[str, Mapping[str, Sequence[Added]]], ours: str, peer: str
) -> list[Row]:
    """All cells of us beside one peer."""
    rows: list[Row] = []
    for cell, by_name in taken.items():
        mine, theirs = by_name[ours], by_name[peer]
        rows += (_stream_rows if "streams" in cell else _request_rows)(cell, peer, mine, theirs)
    return rows


def _request_rows(
    cell: str, peer: str, mine: Sequence[Added], theirs: Sequence[Added]
) -> list[Row]:
    rows = [
        _added(f"added p50, {cell}, {peer}", "p50_s", mine, theirs, MOST_ADDED_P50.get(peer)),
        _added(
            f"added p99, {cell}, {peer}", "p99_s", mine, theirs, MOST_ADDED_P99.get((peer, cell))
        ),
    ]
    if cell == "c64":
        rates = [[one.requests_per_core_s for one in of] for of in (mine, theirs)]
        target = LEAST_RATE.get(peer)
        case = f"requests for a core-second, {cell}, {peer}"
        rows.append(compared(case, "req/s", *rates, target=target))
    return rows


def _stream_rows(cell: str, peer: str, mine: Sequence[Added], theirs: Sequence[Added]) -> list[Row]:
    later = _added(f"inter-token p99 added, {cell}, {peer}", "shift_p99_s", mine, theirs, None)
    transit = _added(f"token's way p99 added, {cell}, {peer}", "transit_p99_s", mine, theirs, None)
    return [bounded(later, MOST_SHIFT_MS), transit]


def _added(
    case: str, what: str, mine: Sequence[Added], theirs: Sequence[Added], target: float | None
) -> Row:
    ours_ms = [1e3 * one.added_s(what) for one in mine]
    peer_ms = [1e3 * one.added_s(what) for one in theirs]
    return compared(case, "ms", ours_ms, peer_ms, target=target, better=Better.LESS)


def rss_row(settled_bytes: int, end_bytes: int, *, requests: int) -> Row:
    """Resident memory at the end over that after the first fifth; every prompt was new."""
    growth = end_bytes / settled_bytes
    case = f"resident memory after {requests:,} prompts, over {settled_bytes / 1e6:.0f} MB"
    return bounded(measured(case, "x", growth, better=Better.LESS), MOST_GROWTH)
