"""Upgrades in waves: how long they take, and which jobs may run where while two versions are out.

`place` is the whole rule of compatibility: a job gets nodes of one version that it runs with, or
it waits. It never gets others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgeline.errors import SpecError
from ridgeline.physics.upgrades import away_gpu_s, upgrade_waves
from ridgeline.quantity import Number, Quantity, ceil, largest, smallest
from ridgeline.topics import Answer, amount, count, numbers, topic


@dataclass(frozen=True, slots=True)
class Job:
    """A gang: all its nodes have the same version. `runs_with` are the versions it works on."""

    name: str
    nodes: int
    runs_with: frozenset[str]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each job runs, by version; `waiting` has those that fit nowhere."""

    on: dict[str, str]
    waiting: tuple[str, ...]


def place(jobs: Sequence[Job], free: Mapping[str, int]) -> Placement:
    """Put each job on nodes of one version that it runs with; the choosiest and largest first.

    Of several versions that fit, the one with the fewest nodes left over is taken, so that room
    for large jobs stays. Ties go by the order of `free`, then of `jobs`.
    """
    left, on, waiting = dict(free), {}, []
    for job in sorted(jobs, key=lambda one: (len(one.runs_with), -one.nodes)):
        fits = [
            version for version in left if version in job.runs_with and left[version] >= job.nodes
        ]
        if fits:
            version = min(fits, key=lambda one: left[one])
            left[version] -= job.nodes
            on[job.name] = version
        else:
            waiting.append(job.name)
    return Placement(on, tuple(waiting))


@topic("upgrade-waves", subject="fleet")
def upgrade(
    nodes: Number = count(2000, "Nodes to upgrade.", noun="nodes"),
    canary_share: Number = amount(
        "1 %", "%", "Share of the first wave.", least="0.01 %", most="100 %"
    ),
    wave_share: Number = amount(
        "10 %", "%", "Share of each later wave.", least="0.1 %", most="100 %"
    ),
    wave_s: Number = amount("90 min", "min", "Time of a wave: drain, upgrade, test and soak."),
    rollback_s: Number = amount("45 min", "min", "Time to take one wave back to the old image."),
    node_gpus: Number = count(8, "Devices of a node.", noun="GPUs"),
    old_driver: Number = count(550, "Branch of the driver before.", least=1),
    new_driver: Number = count(580, "Branch of the driver after.", least=1),
    job_nodes: tuple[Quantity, ...] = numbers("800, 600, 200", "", "Nodes of each job."),
    job_least: tuple[Quantity, ...] = numbers(
        "525, 550, 570", "", "Oldest branch that each job runs with."
    ),
    job_most: tuple[Quantity, ...] = numbers(
        "999, 570, 999", "", "Newest branch that each job runs with."
    ),
) -> Answer:
    """How long an upgrade in waves takes, where each job can run meanwhile, and the way back.

    A job runs with the branches between its oldest and its newest, and never elsewhere: where too
    few nodes have such a branch it waits.
    """
    canaries = ceil(nodes * canary_share).named("canary_nodes", "nodes")
    wave = ceil(nodes * wave_share).named("wave_nodes", "nodes")
    waves = upgrade_waves(nodes, canaries, wave).named("waves")
    jobs = _jobs(job_nodes, job_least, job_most, (old_driver, new_driver))
    rows = _schedule(nodes, canaries, wave, waves, wave_s, jobs, (old_driver, new_driver))
    never = [job.name for job in jobs if not job.runs_with]
    return Answer(
        "{nodes} take {duration_s}: {canary_nodes} first, then waves of {wave_nodes}, {waves} in "
        "all",
        {
            "duration_s": (waves * wave_s).named("duration_s", "h"),
            "waves": waves,
            "canary_nodes": canaries,
            "wave_nodes": wave,
            "rollback_s": (waves * rollback_s).named("full_rollback_s", "h"),
            "wave_rollback_s": rollback_s.named("wave_rollback_s"),
            "at_risk_share": (smallest(wave=wave, all=nodes) / nodes).named("at_risk_share", "%"),
            "away_gpu_s": away_gpu_s(nodes, node_gpus, wave_s).named("away_gpu_s", "GPU h"),
            "needed_nodes": _needed(job_nodes, wave),
        },
        table=rows,
        notes=_notes(rows, never, jobs),
        ok=not never,
    )


def _needed(job_nodes: tuple[Quantity, ...], wave: Quantity) -> Quantity:
    """Nodes that jobs and one wave take at the same time."""
    total = sum(job_nodes[1:], start=job_nodes[0])
    return (total + wave).named("needed_nodes", "nodes")


def _jobs(
    nodes: tuple[Quantity, ...],
    least: tuple[Quantity, ...],
    most: tuple[Quantity, ...],
    versions: tuple[Quantity, Quantity],
) -> list[Job]:
    if not len(nodes) == len(least) == len(most):
        raise SpecError(
            f"{len(nodes)} jobs, {len(least)} oldest and {len(most)} newest branches",
            where="job-nodes",
            remedy="as many of each, in the same order",
        )
    return [
        Job(
            f"job {index}",
            round(size.value),
            frozenset(f"{v.value:g}" for v in versions if low.value <= v.value <= high.value),
        )
        for index, (size, low, high) in enumerate(zip(nodes, least, most, strict=True), 1)
    ]


def _schedule(
    nodes: Quantity,
    canaries: Quantity,
    wave: Quantity,
    waves: Quantity,
    wave_s: Quantity,
    jobs: list[Job],
    versions: tuple[Quantity, Quantity],
) -> tuple[dict[str, Quantity | str], ...]:
    """While each wave is out: nodes of either branch at work, and where every job is."""
    old, new = (f"{v.value:g}" for v in versions)
    rows = []
    done = nodes * 0
    for index in range(round(waves.value)):
        out = smallest(wave=canaries if index == 0 else wave, rest=nodes - done)
        before = largest(rest=nodes - done - out, none=0)
        placed = place(jobs, {old: round(before.value), new: round(done.value)})
        rows.append(
            {
                "wave": f"{index + 1}",
                "starts": (wave_s * index).named("starts_s", "h"),
                "out": out.named("out_nodes", "nodes"),
                "before": before.named("before_nodes", "nodes"),
                "after": done.named("after_nodes", "nodes"),
                "placed": ", ".join(f"{job} on {on}" for job, on in sorted(placed.on.items())),
                "waiting": ", ".join(sorted(placed.waiting)),
            }
        )
        done = done + out
    placed = place(jobs, {old: 0, new: round(nodes.value)})
    rows.append(
        {
            "wave": "done",
            "starts": (wave_s * waves).named("starts_s", "h"),
            "out": (nodes * 0).named("out_nodes", "nodes"),
            "before": (nodes - done).named("before_nodes", "nodes"),
            "after": done.named("after_nodes", "nodes"),
            "placed": ", ".join(f"{job} on {on}" for job, on in sorted(placed.on.items())),
            "waiting": ", ".join(sorted(placed.waiting)),
        }
    )
    return tuple(rows)


def _notes(
    rows: tuple[dict[str, Quantity | str], ...], never: list[str], jobs: list[Job]
) -> tuple[str, ...]:
    told = [
        "Gate each wave on measured bandwidth and step time, not on a boot; rehearse the way back, "
        "with both images bootable. One wave is at risk at a time."
    ]
    stuck = [job for job in str(rows[-1]["waiting"]).split(", ") if job and job not in never]
    told += [f"{job} runs with neither branch: it waits before, during and after." for job in never]
    told += [f"{job} does not run with the new branch: when all is done it waits." for job in stuck]
    held = {job for row in rows[:-1] for job in str(row["waiting"]).split(", ") if job}
    for job in sorted(held - set(never)):
        waits = sum(job in str(row["waiting"]).split(", ") for row in rows[:-1])
        told.append(f"{job} waits in {waits} of {len(rows) - 1} waves for nodes that it runs with.")
    if jobs and not held and not stuck:
        told.append("Every job has nodes in every wave.")
    return tuple(told)
