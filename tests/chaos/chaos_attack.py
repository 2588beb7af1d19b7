"""One run: traffic, kills in the midst of it, the wait for recovery, and all evidence of it.

A victim is killed at a moment in which it holds a reservation and a stream whose tokens arrive.
Both are asserted: the stream is one that the harness reads, the reservation a row of the database,
which is read after the death where the victim is a worker.
"""

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from chaos_platform import SLOTS, WORKERS, Platform, Replica, platform
from chaos_traffic import Asked, Traffic
from sqlalchemy import select

from ridgeline.serving.gateway.ledger_rows import attempts_of
from ridgeline.serving.policy.limits import Account
from ridgeline.serving.usage_log import Usage, UsageLog
from ridgeline.store.database import reading
from ridgeline.store.tables import accounts, decisions, entries, reservations

#: A lease, the patience of the recovery with replicas, and some rounds of it.
QUIET_S = 60.0
_LOOK_S = 0.1
_RUNNING = re.compile(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does; all chance comes from `seed`."""

    seed: int
    requests: int
    kills: int
    mutant: str = "none"
    quiet_s: float = QUIET_S


@dataclass(frozen=True, slots=True)
class Death:
    """A kill. `attempts` has the requests that were reserved by the victim, with what was noted
    of their attempts; `streams` are those that were open there."""

    at_s: float
    victim: str
    attempts: dict[str, int]
    streams: tuple[Asked, ...]

    @property
    def of_worker(self) -> bool:
        return self.victim.startswith("worker")


@dataclass(frozen=True, slots=True)
class Sample:
    """Two tenants that both queue at one worker: their counters, in weighed tokens."""

    at_s: float
    worker: int
    counters: tuple[float, float]


@dataclass(slots=True)
class Evidence:
    """All that the oracles look at."""

    plan: Plan
    asked: list[Asked] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    #: At a worker each, those in which not both queued among them.
    looks: int = 0
    entries: list[Any] = field(default_factory=list)
    reservations: list[Any] = field(default_factory=list)
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    #: By request id and number of attempt.
    logs: dict[str, dict[int, Usage]] = field(default_factory=dict)
    in_flight: dict[str, float] = field(default_factory=dict)
    backlog_ns: tuple[int, int] = (0, 0)
    load_s: float = 0.0
    recovery_s: float = 0.0
    slots: int = SLOTS

    @property
    def lives(self) -> int:
        """Lives of workers: each began with counters of its own."""
        return WORKERS + sum(death.of_worker for death in self.deaths)


async def attack(folder: Path, url: str, plan: Plan) -> Evidence:
    """The whole run."""
    evidence = Evidence(plan)
    async with platform(folder, url, plan.seed, mutant=plan.mutant) as told:
        traffic = Traffic(told.workers.url, told.keys, plan.seed, plan.requests)
        evidence.asked = traffic.asked
        began_s, began_ns = time.monotonic(), time.time_ns()
        looking = asyncio.create_task(_look(told, evidence))
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run())
            group.create_task(_kill_all(told, traffic, evidence))
        looking.cancel()
        with suppress(asyncio.CancelledError):  # a look that failed is a failure of the run
            await looking
        evidence.backlog_ns = began_ns, traffic.stopped_ns
        evidence.load_s = time.monotonic() - began_s
        await _quiet(told, evidence)
        evidence.recovery_s = time.monotonic() - began_s - evidence.load_s
        _read_store(told, evidence)
    for replica in told.replicas:  # its process is gone, so its log may be opened
        _read_log(replica.usage_log, evidence)
    return evidence


async def _kill_all(told: Platform, traffic: Traffic, evidence: Evidence) -> None:
    """A worker, a replica, then a worker together with the replica of one of its streams, ..."""
    plan, chance = evidence.plan, Random(evidence.plan.seed + 1)
    coming_back: list[asyncio.Task[None]] = []
    for number in range(plan.kills):
        due = (number + 1) * plan.requests // (plan.kills + 2)
        while traffic.ended < due:
            await _next_pulse(traffic)
        await asyncio.gather(*coming_back)
        if number % 3 == 1:
            death = await _kill_replica(told, traffic, chance.choice(told.replicas))
            coming_back.append(asyncio.create_task(told.replica(death.victim).start()))
            evidence.deaths.append(death)
            continue
        order = chance.sample(range(WORKERS), WORKERS)
        death = await _kill_worker(told, traffic, order)
        evidence.deaths.append(death)
        if number % 3 == 2:
            stream = next(one for one in death.streams if one.tokens)
            replica = told.replica(stream.wire.replica)
            await replica.kill()
            evidence.deaths.append(Death(time.monotonic(), replica.name, {}, (stream,)))
            coming_back.append(asyncio.create_task(replica.start()))
    await asyncio.gather(*coming_back)
    traffic.is_needed = False


async def _next_pulse(traffic: Traffic) -> None:
    traffic.pulse.clear()
    await traffic.pulse.wait()


async def _kill_worker(told: Platform, traffic: Traffic, order: list[int]) -> Death:
    """The first worker that has a stream of ours with tokens, and a reservation for it.

    It is frozen while it is looked at: what ends on its way to us had ended for it.
    """
    while True:
        all_live = all(map(told.lives, order))  # else nobody would take the next requests
        for number in order if all_live and _streaming(traffic) else ():
            told.freeze(number)
            if _streaming(traffic) & {row.request_id for row in told.reservations(number)}:
                told.kill_worker(number)
                return _death_of_worker(told, number, traffic)
            told.freeze(number, thaw=True)
        await _next_pulse(traffic)


def _streaming(traffic: Traffic) -> set[str]:
    return {one.id for one in traffic.open if one.streams and one.tokens}


def _death_of_worker(told: Platform, number: int, traffic: Traffic) -> Death:
    rows = {row.request_id: row for row in told.reservations(number)}
    attempts = {name: len(attempts_of(row.attempts)) for name, row in rows.items()}
    streams = tuple(one for one in traffic.open if one.streams and one.id in rows)
    running = [row for row in rows.values() if row.ended_ns is None]
    assert running, "a worker was killed while no reservation of its was open"
    assert any(one.tokens for one in streams), "a worker was killed while no stream was open"
    return Death(time.monotonic(), f"worker {number}", attempts, streams)


async def _kill_replica(told: Platform, traffic: Traffic, replica: Replica) -> Death:
    while True:
        streams = tuple(
            one
            for one in traffic.open
            if one.streams and one.tokens and one.wire.replica == replica.name
        )
        rows = [row for row in told.reservations() if row.ended_ns is None] if streams else []
        if {one.id for one in streams} & {row.request_id for row in rows}:
            break
        await _next_pulse(traffic)
    await replica.kill()
    return Death(time.monotonic(), replica.name, {}, streams)


async def _look(told: Platform, evidence: Evidence) -> None:
    """The lines of all workers, until cancelled."""
    while True:
        for number, status in enumerate(await told.statuses()):
            evidence.looks += 1
            lines = {row["tenant"]: row for row in status["queues"] if row["queued"]}
            if {"alpha", "beta"} <= lines.keys():
                alpha, beta = (lines[name]["counter_tokens"] for name in ("alpha", "beta"))
                evidence.samples.append(Sample(time.monotonic(), number, (alpha, beta)))
        await asyncio.sleep(_LOOK_S)


async def _quiet(told: Platform, evidence: Evidence) -> None:
    """Until nothing is reserved and nothing in flight, or patience has run out."""
    until_s = time.monotonic() + evidence.plan.quiet_s
    while True:
        evidence.in_flight = await _in_flight(told)
        if not told.reservations() and not any(evidence.in_flight.values()):
            return
        if time.monotonic() > until_s:
            return  # the oracles say what is left
        await asyncio.sleep(_LOOK_S)


async def _in_flight(told: Platform) -> dict[str, float]:
    """Everything that counts what runs, by its name; a worker that is missing is not zero."""
    statuses = await told.statuses()
    found: dict[str, float] = {"workers that do not answer": WORKERS - len(statuses)}
    for number, status in enumerate(statuses):
        found[f"worker {number}"] = status["in_flight"]
        for row in status["queues"]:
            found[f"worker {number}, queue of {row['tenant']}"] = row["queued"] + row["running"]
        for row in status["replicas"]:
            found[f"worker {number}, {row['id']}"] = row["in_flight"]
            found[f"worker {number}, {row['id']}, prefill"] = row["prefilling_tokens"]
    for name, text in (await told.replica_metrics()).items():
        for place, value in enumerate(_RUNNING.findall(text)):
            found[f"{name}, metric {place}"] = float(value)
    return found


def _read_store(told: Platform, evidence: Evidence) -> None:
    with reading(told.store) as connection:
        evidence.entries = list(connection.execute(select(entries).order_by(entries.c.id)))
        evidence.reservations = list(connection.execute(select(reservations)))
        for row in connection.execute(select(decisions)):
            evidence.decisions[row.request_id] = msgspec.json.decode(row.detail)
        for row in connection.execute(select(accounts)):
            evidence.accounts[row.subject] = msgspec.json.decode(row.state, type=Account)


def _read_log(folder: Path, evidence: Evidence) -> None:
    log = UsageLog(folder)
    for key in list(log._serials):
        usage = log.find(key.decode())
        root, _, number = key.decode().partition("~")
        if usage is not None and root.startswith("req-"):
            evidence.logs.setdefault(root, {})[int(number or 1)] = usage
    log.close()
