"""Tenants that share a replica, in virtual time: what one of them does to the others.

Every decision is the gateway's and the engine's own code: limits (`policy.limits`), the line
(`policy.pool`) and the batch (`policy.batch`). A step takes what the step-time model says. The
same seed gives the others the same requests whatever the noisy one does and whoever limits it.
A client that is refused does not come again.

At one instant a step ends before requests arrive: who decides has seen what happened.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil

from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.admit import Refuse
from ridgeline.serving.policy.batch import Batcher, Step
from ridgeline.serving.policy.batch import Limits as BatchLimits
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.classes import NS
from ridgeline.serving.policy.fair import Pick
from ridgeline.serving.policy.limits import Account, Granted, Limits, Use, release, reserve, settle
from ridgeline.serving.policy.pool import Pool
from ridgeline.serving.policy.vtc import Entry
from ridgeline.workload import Arrivals, Sizes, synthetic

POISSON = Arrivals("Poisson", 1.0)
_MODEL = "llama-3.1-8b"
_BLOCK_TOKENS = 16
_STEP, _ARRIVAL = 0, 1  # ranks at one instant


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant's traffic: requests, each `times` as large as its sizes say, and its limits."""

    name: str
    rate_per_s: float
    prompt: Sizes
    output: Sizes
    times: int = 1
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Setup:
    """The replica and the line before it. Without `fair`, all tenants queue as if they were one."""

    machine: Machine
    slots: int = 64
    max_batched_tokens: int = 2048
    fair: bool = True
    lasts_s: float = 180.0
    seed: int = 0


@dataclass(slots=True)
class Asked:
    """One request and what became of it; times are None where it did not come so far."""

    tenant: str
    at_ns: int
    use: Use
    refused: str = ""
    began_ns: int | None = None
    first_ns: int | None = None
    done_ns: int | None = None
    said: int = 0

    @property
    def total_s(self) -> float:
        """From asking to the last token."""
        assert self.done_ns is not None, f"{self} has not ended"
        return (self.done_ns - self.at_ns) / NS


@dataclass(frozen=True, slots=True)
class Outcome:
    """All requests of a run, to the end of each."""

    asked: Sequence[Asked]
    lasted_s: float

    def of(self, tenants: frozenset[str]) -> list[Asked]:
        """What these tenants asked and got."""
        return [one for one in self.asked if one.tenant in tenants and not one.refused]

    def refused(self, tenants: frozenset[str]) -> int:
        """How often they were refused."""
        return sum(bool(one.refused) for one in self.asked if one.tenant in tenants)

    def p99_s(self, tenants: frozenset[str]) -> float:
        """Their 99th percentile of the whole time, nearest rank."""
        times = sorted(one.total_s for one in self.of(tenants))
        return times[ceil(0.99 * len(times)) - 1]

    def first_p99_s(self, tenants: frozenset[str]) -> float:
        """Their 99th percentile of the time to the first token."""
        times = sorted((one.first_ns or 0) - one.at_ns for one in self.of(tenants))
        return times[ceil(0.99 * len(times)) - 1] / NS

    def tokens(self, tenants: frozenset[str]) -> int:
        """What they were served, input and output."""
        return sum(one.use.input_tokens + one.use.output_tokens for one in self.of(tenants))


def simulate(tenants: Sequence[Tenant], setup: Setup) -> Outcome:
    """All that the tenants ask in the time of the setup, served to its end."""
    world = _World(tenants, setup)
    for number, tenant in enumerate(tenants):
        requests = synthetic(
            POISSON,
            tenant.prompt,
            tenant.output,
            rate_per_s=tenant.rate_per_s,
            seed=setup.seed * 1_000 + number,
        )
        for one in takewhile(lambda request: request.at_s < setup.lasts_s, requests):
            use = Use(one.prompt_tokens * tenant.times, one.output_tokens * tenant.times)
            world.expect(Asked(tenant.name, int(one.at_s * NS), use))
    return world.run()


class _World:
    """The clock, the replica, the line and each tenant's account."""

    def __init__(self, tenants: Sequence[Tenant], setup: Setup) -> None:
        self._setup = setup
        self._limits = {tenant.name: tenant.limits for tenant in tenants}
        self._accounts = dict.fromkeys(self._limits, Account())
        blocks = setup.machine.kv_tokens // _BLOCK_TOKENS
        self._batcher = Batcher(
            BatchLimits(setup.slots, setup.max_batched_tokens), BlockBook(blocks, _BLOCK_TOKENS)
        )
        self._pool = Pool()
        self._asked: list[Asked] = []
        self._events: list[tuple[int, int, int]] = []  # when, rank, which request
        self._step: Step | None = None
        self._now_ns = 0

    def expect(self, one: Asked) -> None:
        heapq.heappush(self._events, (one.at_ns, _ARRIVAL, len(self._asked)))
        self._asked.append(one)

    def run(self) -> Outcome:
        while self._events:
            self._now_ns, rank, number = heapq.heappop(self._events)
            if rank == _STEP:
                self._end_step()
            else:
                self._arrive(number)
            while isinstance(pick := self._pool.pick(self._setup.slots, self._now_ns), Pick):
                entry = pick.entry
                self._batcher.add(entry.request_id, entry.input_tokens, entry.output_tokens)
            self._begin_step()
        return Outcome(self._asked, self._now_ns / NS)

    def _arrive(self, number: int) -> None:
        one = self._asked[number]
        account = self._accounts[one.tenant]
        answer = reserve(account, self._limits[one.tenant], one.use, self._now_ns)
        if not isinstance(answer, Granted):
            one.refused = answer.reason
            return
        self._accounts[one.tenant] = answer.account
        line_of = one.tenant if self._setup.fair else "all"
        use = one.use
        entry = Entry(str(number), _MODEL, line_of, "default", use.input_tokens, use.output_tokens)
        verdict = self._pool.enter(entry, self._setup.slots, self._now_ns)
        if isinstance(verdict, Refuse):
            one.refused = verdict.reason
            back = release(answer.account, use, one.at_ns, self._now_ns)
            self._accounts[one.tenant] = back

    def _begin_step(self) -> None:
        if self._step is not None:
            return
        step = self._batcher.decide()
        if not step.chunks:
            return
        self._step = step
        took_s = self._setup.machine.step_s(step)
        heapq.heappush(self._events, (self._now_ns + ceil(took_s * NS), _STEP, 0))

    def _end_step(self) -> None:
        step, self._step = self._step, None
        assert step is not None, "a step ends that has begun"
        self._batcher.commit(step)
        for chunk in step.chunks:
            if chunk.samples:
                self._said(chunk.id)

    def _said(self, name: str) -> None:
        one = self._asked[int(name)]
        one.said += 1
        one.first_ns = one.first_ns or self._now_ns
        self._pool.queue.said(name, one.said)
        if one.said == one.use.output_tokens:
            one.done_ns = self._now_ns
            self._batcher.finish(name)
            self._pool.end(name, self._now_ns)
            account = self._accounts[one.tenant]
            self._accounts[one.tenant] = settle(account, one.use, one.at_ns, one.use, self._now_ns)
