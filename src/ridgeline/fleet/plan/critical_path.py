"""The chain of tasks that decides when a fleet is in use, slack of the rest, cost of delay.

Tasks are written `NAME:DURATION<NEEDED,NEEDED; ...`, such as
`power:270d; hall:180d; racks:30d<hall,power`.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError, UnitError
from ridgeline.quantity import Number, Provenance, Quantity, given, largest, smallest, value_of
from ridgeline.topics import Answer, amount, an_accelerator, count, text, topic
from ridgeline.units import parse_number, parse_unit

#: Bringing a site up: what has to be done before what, with lead times that are usual.
BRING_UP = (
    "power-feed:270d; hall:180d; liquid-loop:45d<hall; out-of-band:14d<hall; gpus:150d; "
    "racks:21d<hall,gpus; power-on:7d<racks,power-feed,liquid-loop,out-of-band; "
    "front-end:21d<out-of-band; storage:21d<front-end; fabric:45d<racks,out-of-band; "
    "burn-in:7d<power-on; scale-test:14d<burn-in,fabric,storage"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_INSTANT = 1e-6
_EXAMPLE = "NAME:DURATION<NEEDED, such as racks:30d<hall,power"


@dataclass(frozen=True)
class Task:
    """Something to be done: its time, lead time included, and what has to be done first."""

    name: str
    duration: Quantity
    needs: tuple[str, ...]


@topic("critical-path", subject="fleet")
def critical_path(
    tasks: str = text(
        BRING_UP, "Tasks as NAME:DURATION<NEEDED,NEEDED; ...", other="power:90d; racks:30d<power"
    ),
    gpus: Number = count(10_000, "GPUs that wait for the end.", noun="GPUs"),
    accelerator: Accelerator = an_accelerator("h100-sxm", "The GPUs."),
    price_usd_per_s: Number = amount(
        "0 USD/h", "USD/h", "What one GPU would earn; 0 takes the catalog's price."
    ),
    slip_s: Number = amount("1 month", "month", "How late a task may come."),
) -> Answer:
    """When a deployment is done, which tasks decide it, the slack of the rest, cost of delay."""
    order = sort(read(tasks))
    ends = _ends(order)
    needed = {need for task in order for need in task.needs}
    last = {name: end for name, end in ends.items() if name not in needed}
    finish = _step(_latest_of(last), "length")
    latest = _latest(order, finish)
    each = accelerator.price_or(price_usd_per_s)
    value_usd_per_s = (gpus * each).named("fleet_usd_per_s", "USD/h")
    rows = []
    for task in order:
        slack = (latest[task.name] - ends[task.name]).named(f"{_word(task.name)}_slack", "day")
        late = largest(none=0 * slip_s, beyond_slack=slip_s - slack)
        rows.append({
            "task": task.name,
            "starts": (ends[task.name] - task.duration).named(f"{_word(task.name)}_start", "day"),
            "ends": ends[task.name],
            "slack": slack,
            "cost of slip": (value_usd_per_s * late).named(f"{_word(task.name)}_slip", "MUSD"),
        })  # fmt: skip
    a_day = given("1 day", name="a_day", provenance=Provenance.DEFINED)
    delay = (value_usd_per_s * slip_s).named("cost_of_delay", "MUSD")
    path = _path(order, ends)
    critical = [str(row["task"]) for row in rows if _least(row["slack"]) <= _INSTANT]
    return Answer(
        f"{{length}} along {' > '.join(path)}; {{slip_s}} late cost {{cost_of_delay}}",
        {
            "length": finish,
            "cost_of_delay": delay,
            "cost_of_a_day": (value_usd_per_s * a_day).named("cost_of_a_day", "USD"),
            "fleet_value": value_usd_per_s,
            "critical": given(len(critical), "tasks", name="critical", source="no slack"),
        },
        tuple(rows),
        (
            f"Without slack: {', '.join(critical)}.",
            accelerator.price_note(price_usd_per_s, "--price-usd-per-s"),
            *_NOTES,
        ),
    )


_NOTES = (
    "A task with slack delays nothing until its slack is used up; a critical one delays all at "
    'once. --set power_feed="300 day" moves one.',
    "Two things cannot overlap whatever is paid: the liquid loop is commissioned before liquid "
    "racks are powered, and the fabric is validated before scale tests.",
)


def read(written: str) -> list[Task]:
    """The tasks of a text; SpecError or UnitError names the task that is wrong."""
    found: dict[str, Task] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", written))):
        task = _task(part)
        if _word(task.name) in map(_word, found):
            raise SpecError(f"{task.name} is there twice", where="tasks", remedy="another name")
        found[task.name] = task
    if not found:
        raise SpecError("there are no tasks", where="tasks", remedy=_EXAMPLE)
    for task in found.values():
        for need in task.needs:
            if need not in found:
                near = difflib.get_close_matches(need, found, n=3, cutoff=0.4)
                raise SpecError(
                    f"{task.name} needs {need}, which is no task", where="tasks",
                    remedy=", ".join(near or found),
                )  # fmt: skip
    return list(found.values())


def _task(part: str) -> Task:
    head, _, needs = part.partition("<")
    name, colon, duration = (piece.strip() for piece in head.partition(":"))
    if not colon or not _NAME.fullmatch(name):
        raise SpecError(f"{part!r} is no task", where="tasks", remedy=_EXAMPLE)
    try:
        seconds, unit = parse_number(duration, parse_unit("s").dimension)
    except UnitError as error:
        raise UnitError(
            f"{name}: {error.problem}", where="tasks", remedy="30d, 12h, 6 week"
        ) from error
    if seconds < 0:
        raise SpecError(f"{name} takes less than nothing", where="tasks", remedy="30d")
    length = given(
        seconds / unit.factor, unit.symbol, name=_word(name), provenance=Provenance.ASSUMED,
        source="tasks",
    )  # fmt: skip
    wanted = tuple(dict.fromkeys(need.strip() for need in needs.split(",") if need.strip()))
    return Task(name, length, wanted)


def sort(tasks: list[Task]) -> list[Task]:
    """The tasks so that each comes after what it needs; SpecError shows a cycle."""
    left = {task.name: task for task in tasks}
    done: dict[str, Task] = {}
    while left:
        ready = [task for task in left.values() if all(need in done for need in task.needs)]
        if not ready:
            raise SpecError(
                f"these wait for each other: {' > '.join(_cycle(left))}", where="tasks",
                remedy="drop one of the needs",
            )  # fmt: skip
        for task in ready:
            done[task.name] = left.pop(task.name)
    return list(done.values())


def _cycle(left: Mapping[str, Task]) -> list[str]:
    """One cycle among tasks of which none can start, in the order of doing."""
    walked = [next(iter(left))]
    while True:
        need = next(need for need in left[walked[-1]].needs if need in left)
        if need in walked:
            return [need, *reversed(walked[walked.index(need) :])]
        walked.append(need)


def _ends(order: list[Task]) -> dict[str, Quantity]:
    """When each task is done, if all start as early as they can."""
    ends: dict[str, Quantity] = {}
    for task in order:
        end = task.duration
        if task.needs:
            end = _latest_of({need: ends[need] for need in task.needs}) + task.duration
        ends[task.name] = _step(end, f"{_word(task.name)}_end")
    return ends


def _latest(order: list[Task], finish: Quantity) -> dict[str, Quantity]:
    """When each task has to be done, if the whole may end no later."""
    latest: dict[str, Quantity] = {}
    for task in reversed(order):
        later: dict[str, Any] = {
            _word(one.name): latest[one.name] - one.duration
            for one in order if task.name in one.needs
        }  # fmt: skip
        last = smallest(**later) if len(later) > 1 else next(iter(later.values()), finish)
        latest[task.name] = _step(last, f"{_word(task.name)}_latest")
    return latest


def _latest_of(ends: Mapping[str, Quantity]) -> Quantity:
    if len(ends) == 1:
        return next(iter(ends.values()))
    latest: Quantity = largest(**{_word(name): end for name, end in ends.items()})
    return latest


def _step(number: Quantity, name: str) -> Quantity:
    """The same number as a step of its own, though it may be another's."""
    step = number.but(op="is", args=(number,)) if number.name else number
    return step.named(name, "day")


def _path(order: list[Task], ends: Mapping[str, Quantity]) -> list[str]:
    """One longest chain, first task first; of a sweep, that of its first point."""

    def end(name: str) -> float:
        value = value_of(ends[name])
        return float(value.flat[0] if getattr(value, "ndim", 0) else value)

    needs = {task.name: task.needs for task in order}
    path = [max(needs, key=end)]
    while needs[path[0]]:
        path.insert(0, max(needs[path[0]], key=end))
    return path


def _least(slack: Number) -> float:
    value = value_of(slack)
    return float(getattr(value, "min", lambda: value)())


def _word(name: str) -> str:
    return name.replace("-", "_")
