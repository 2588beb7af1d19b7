"""Scaling by the queue's depth fails in five ways, and how each is mended (ledger row S189).

    empty      nobody waits, so nobody is needed: what runs is not counted       count what runs
    overshoot  starts are not counted, so the same are asked for again            count them
    early      its health page answers, so it gets requests while it loads        ask it for a token
    elsewhere  the queue has moved to where nobody looks: before the replicas     look there
    cut        what is taken away is killed at once                               let it end

Each is simulated as it fails, and with its one fix. The live counterparts are in the tests of the
control plane. How long a climb takes that may add two in 120 s is simulated too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.scale import Look, Scaled, Settings, Step
from ridgeline.serving.policy.scale_rules import OURS, Rule
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Model, Scaling, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

_STEP_S, _START_S = 0.02, 10.0


def by_queue_depth(looks: Sequence[Look], settings: Settings, least: int) -> Scaled:
    """ceil(waiting / threshold); what is missing is what is not ready, whatever starts."""
    now = looks[-1]
    wanted = ceil((now.waiting or 0) / settings.per_replica)
    wanted = min(max(wanted, settings.least, least), settings.most)
    missing = wanted - now.ready
    replicas = now.replicas + missing if missing > 0 else wanted
    return Scaled(min(replicas, settings.most), f"{now.waiting} wait at replicas")


NAIVE = Rule("queue depth", by_queue_depth)


@dataclass(frozen=True, slots=True)
class Shell:
    """How replicas are run: a rule, how early they are called ready, how long they may drain."""

    rule: Rule
    ready_early_s: float
    drain_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """How replicas are run where it fails, and with its fix."""

    broken: Shell
    fixed: Shell


EMPTY = Failure(Shell(NAIVE, 0.0, 0.0), Shell(OURS, 0.0, 0.0))
OVERSHOOT = Failure(Shell(NAIVE, 0.0, 600.0), Shell(OURS, 0.0, 600.0))
EARLY = Failure(Shell(OURS, _START_S - 1.0, 600.0), Shell(OURS, 0.0, 600.0))
ELSEWHERE = Failure(Shell(NAIVE, 0.0, 600.0), Shell(OURS, 0.0, 600.0))
CUT = Failure(Shell(OURS, 0.0, 0.0), Shell(OURS, 0.0, 600.0))


def empty(shell: Shell) -> int:
    """Answers that were cut of one that runs alone."""
    return _cut(_run(shell, [Request(0.0, 10, 2_000)], Settings(0, 1, 2.0, down_after_s=4.0)))


def overshoot(shell: Shell) -> int:
    """Replicas asked for at most, for six requests of which each serves two."""
    outcome = _run(
        shell, [Request(0.0, 10, 3_000)] * 6, Settings(1, 12, 2.0, Step(12, 60.0)), seats=1
    )
    return max(count for _, _, count, _ in outcome.scaled)


def early(shell: Shell) -> float:
    """The longest wait (s) for a first token of those who come while the second replica loads."""
    asks = [Request(0.0, 10, 3_000)] * 6
    asks += [Request(4.0 + 0.5 * n, 10, 5) for n in range(4)]
    settings = Settings(1, 2, 2.0, Step(2, 60.0))
    outcome = _run(shell, asks, settings, seats=8)
    short = outcome.columns["said_tokens"][outcome.answered] == 5
    return float(outcome.ttft_s()[short].max())


def elsewhere(shell: Shell) -> int:
    """Replicas at most for eight requests, of which the gateway lets two at a time through."""
    outcome = _run(
        shell, [Request(0.0, 10, 1_000)] * 8, Settings(1, 4, 2.0, Step(4, 60.0)), slots=2
    )
    return max((count for _, _, count, _ in outcome.scaled), default=1)


def cut(shell: Shell) -> int:
    """Answers that were cut where of two replicas, with a stream each, one is taken away."""
    settings = Settings(1, 2, 4.0, down_after_s=4.0)
    return _cut(_run(shell, [Request(0.0, 10, 2_000)] * 2, settings, replicas=2))


def climb_s(settings: Settings, wanted: int, start_s: float) -> float:
    """From a demand for so many replicas until all of them serve."""
    requests = [Request(0.0, 10, 60_000)] * round(wanted * settings.per_replica)
    engine = _engine(64)
    scaling = Scaling(settings, every_s=1.0)
    model = Model("chat", engine, settings.least, scaling, {"start": start_s}, slots=1_000)
    outcome = simulate(Serving((model,)), OpenLoop(requests, "chat"))
    began = sorted(one.began_s + one.starting_s for one in outcome.replicas)
    return began[wanted - 1]


def _run(
    shell: Shell,
    requests: list[Request],
    settings: Settings,
    *,
    seats: int = 8,
    slots: int = 64,
    replicas: int = 1,
) -> Outcome:
    model = Model(
        "chat",
        _engine(seats),
        replicas,
        Scaling(settings, every_s=1.0, rule=shell.rule),
        {"start": _START_S},
        rule="least-load",
        slots=slots,
        drain_s=shell.drain_s,
        ready_early_s=shell.ready_early_s,
    )
    serving = Serving((model,))
    patient = replace(serving.gateway, hold_s=60.0, probe_every_s=0.5)
    return simulate(replace(serving, gateway=patient), OpenLoop(requests, "chat"))


def _engine(seats: int) -> Engine:
    return Engine(Machine(Plain(_STEP_S, 0.0, 1e9), 10_000_000), max_seqs=seats)


def _cut(outcome: Outcome) -> int:
    return outcome.requests - int(outcome.answered.sum())
