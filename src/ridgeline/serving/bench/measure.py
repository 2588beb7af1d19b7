"""From a plan to its result, synchronously: the event loop, Ctrl-C, warm-up, run or sweep."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ridgeline import event_loop
from ridgeline.serving.bench.knee import Verdict
from ridgeline.serving.bench.load import Bench, Plan, Watcher, opened
from ridgeline.serving.bench.report import Report
from ridgeline.serving.bench.sweep import Sweep, sweep

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Levels:
    """Wanted: a sweep. `attainment` is the least share of goodput; `told` hears of each level."""

    attainment: float
    told: Callable[[Report, Verdict], None]


def measure_run(plan: Plan, watcher: Watcher) -> Report:
    """One warmed-up run. Raises SpecError, BenchError; Ctrl-C ends it early, with a report."""
    return _on_a_loop(plan, watcher, lambda bench: bench.run(plan))


def measure_sweep(plan: Plan, watcher: Watcher, levels: Levels) -> Sweep:
    """A warmed-up sweep. Raises SpecError, BenchError; Ctrl-C ends it with the whole levels."""
    return _on_a_loop(
        plan, watcher, lambda bench: sweep(bench, plan, levels.attainment, levels.told)
    )


def _on_a_loop(plan: Plan, watcher: Watcher, work: Callable[[Bench], Awaitable[R]]) -> R:
    async def main() -> R:
        stop = asyncio.Event()
        _on_interrupt(stop)
        async with opened(plan, watcher, stop) as bench:
            await bench.warm(plan)
            return await work(bench)

    try:
        return event_loop.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _on_interrupt(stop: asyncio.Event) -> None:
    """First Ctrl-C: stop sending and report what there is. Second: leave at once."""
    task = asyncio.current_task()
    assert task is not None, "not in a task"

    def interrupt() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    event_loop.on_signals(interrupt, signal.SIGINT)
