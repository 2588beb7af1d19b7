"""How a run goes, told on standard error: a bar on a terminal, a line now and then in a pipe."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ridgeline.serving.bench.load import Plan, Watcher
from ridgeline.serving.bench.sample import Sample

TOLD_EVERY_S = 5.0


class Counted:
    """Counts a run's answers and says how far it is. The share is of requests, or of time."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.began_s = 0.0
        self.answered = 0
        self.failed = 0

    def begin(self, plan: Plan) -> None:
        """A new run."""
        self.plan, self.began_s = plan, time.perf_counter()
        self.answered = self.failed = 0

    def count(self, sample: Sample) -> None:
        """One more answer."""
        self.answered += sample.ok
        self.failed += not sample.ok

    def share(self) -> float | None:
        """How much of the run is done, 0..1; None where that is not known."""
        assert self.plan is not None, "counted before it began"
        if self.plan.requests is not None:
            return min(1.0, (self.answered + self.failed) / self.plan.requests)
        if self.plan.duration_s is not None:
            return min(1.0, (time.perf_counter() - self.began_s) / self.plan.duration_s)
        return None

    def text(self) -> str:
        """Answered and failed so far."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.answered} answered{failed}"


@contextmanager
def watching(console: Console) -> Iterator[Watcher]:
    """A watcher for `console`, which should be standard error."""
    if console.is_terminal:
        with _bar(console) as watcher:
            yield watcher
    else:
        yield _lines(console)


@contextmanager
def _bar(console: Console) -> Iterator[Watcher]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    counted = Counted()
    shown: list[TaskID] = []
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:

        def began(plan: Plan, text: str) -> None:
            counted.begin(plan)
            for task in shown:
                progress.remove_task(task)
            shown[:] = [progress.add_task(text, total=None, said="")]

        def seen(sample: Sample) -> None:
            counted.count(sample)
            share = counted.share()
            total = None if share is None else 1.0
            progress.update(shown[0], total=total, completed=share or 0.0, said=counted.text())

        yield Watcher(began, seen)


def _lines(console: Console) -> Watcher:
    counted = Counted()
    told_s = [0.0]

    def say(text: str) -> None:
        told_s[0] = time.perf_counter()
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    def began(plan: Plan, text: str) -> None:
        counted.begin(plan)
        say(f"{text} ...")

    def seen(sample: Sample) -> None:
        counted.count(sample)
        now_s = time.perf_counter()
        if now_s - told_s[0] >= TOLD_EVERY_S:
            say(f"  {counted.text()} after {now_s - counted.began_s:.0f} s")

    return Watcher(began, seen)
