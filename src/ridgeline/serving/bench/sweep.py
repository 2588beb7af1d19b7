"""The highest load at which goodput holds: runs level after level where `knee` says so."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ridgeline.errors import BenchError
from ridgeline.serving.bench.compare import Finding, findings
from ridgeline.serving.bench.knee import Level, Search, Verdict
from ridgeline.serving.bench.load import Bench, Plan
from ridgeline.serving.bench.report import Report

SCHEMA = "ridgeline.bench.sweep/1"


@dataclass(frozen=True, slots=True)
class Sweep:
    """All levels, from the lowest load to the highest, and the knee.

    `best` is the highest load that was borne, None where none was; `reason` says what stopped
    the level above it, "" where the search ended before anything did.
    """

    levels: tuple[Report, ...]
    best: float | None
    reason: str
    attainment: float
    closed: bool
    interrupted: bool
    findings: tuple[Finding, ...]

    @property
    def unit(self) -> str:
        """What `best` counts."""
        return "workers" if self.closed else "requests/s"

    def at_best(self) -> Report | None:
        """The report of the best level."""
        return next((level for level in self.levels if level.setting.load == self.best), None)

    def to_dict(self, *, samples: bool = False) -> dict[str, Any]:
        """The sweep as JSON says it; on demand with every request of every level."""
        return {
            "schema": SCHEMA,
            "best": self.best,
            "unit": self.unit,
            "reason": self.reason,
            "attainment": self.attainment,
            "interrupted": self.interrupted,
            "findings": [{**asdict(found), "text": str(found)} for found in self.findings],
            "levels": [level.to_dict(samples=samples) for level in self.levels],
        }


def level_of(report: Report) -> Level:
    """What the search needs to know of a run."""
    load = report.setting.load
    assert load is not None, "a replay has no load to search over"
    return Level(
        load=load,
        goodput_share=report.goodput.share,
        tokens_per_s=report.output_tokens_per_s,
        e2e_p50_s=report.e2e.p50 if report.e2e else 0.0,
        arriving_s=report.arriving_s,
        drain_s=0.0 if report.setting.closed else report.duration_s - report.arriving_s,
    )


def level_plan(plan: Plan, load: float, number: int) -> Plan:
    """The plan of one level: its load, and a seed of its own so that no prompt is seen twice."""
    return replace(plan.at(load), seed=plan.seed + number)


async def sweep(
    bench: Bench,
    plan: Plan,
    attainment: float,
    told: Callable[[Report, Verdict], None],
) -> Sweep:
    """Search from the plan's own load; `told` hears of every level.

    Raises BenchError where the client was the bottleneck before any load was too much.
    """
    assert plan.load is not None, "a replay has no load to search over"
    search = Search(plan.load, attainment, closed=plan.workers is not None)
    reports: list[Report] = []
    while (load := search.next_load()) is not None and not bench.stop.is_set():
        try:
            found = await bench.run(level_plan(plan, load, len(reports)))
        except BenchError as error:
            raise _with_what_held(error, search) from error
        if found.interrupted:
            break
        reports.append(found)
        told(found, search.tell(level_of(found)))
    ordered = tuple(sorted(reports, key=lambda level: level.setting.load or 0.0))
    best = search.best.load if search.best else None
    return Sweep(
        levels=ordered,
        best=best,
        reason=search.reason,
        attainment=attainment,
        closed=search.closed,
        interrupted=bench.stop.is_set(),
        findings=tuple(findings(ordered, attainment)),
    )


def _with_what_held(error: BenchError, search: Search) -> BenchError:
    """The same refusal, with what had been found before it."""
    if search.best is None:
        return error
    unit = "workers" if search.closed else "requests/s"
    held = f"{error.problem}; {search.best.load:.3g} {unit} still held"
    return BenchError(held, where=error.where, remedy=error.remedy)
