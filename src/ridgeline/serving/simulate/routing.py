"""Routing in virtual time: the gateway's own rules over replicas that batch as the engine does.

Each replica is the engine's scheduler with its paged cache (`policy.batch`, `policy.blocks`), and
a step takes what the step-time model says. The router is the gateway's: the same rules, the same
prefix index, load counted at dispatch. So what is shown here about a rule holds for its code.

At one instant steps end before requests arrive: who decides has seen what happened.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil

from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.batch import Batcher, Limits, Step
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.prefix import PrefixIndex
from ridgeline.serving.policy.route import NoRoute, Replica, Request, Sent, View, route
from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import Saturation, saturation
from ridgeline.serving.simulate.talks import Talk, Turn

_MODEL = "model"
_STEP, _ARRIVAL = 0, 1  # ranks at one instant


@dataclass(frozen=True, slots=True)
class Setup:
    """The replicas, all alike, and the router's settings."""

    rule: str
    machine: Machine
    replicas: int = 8
    max_seqs: int = 256
    max_batched_tokens: int = 2048
    block_tokens: int = 16
    wait_s: float = 0.5
    seed: int = 0

    @property
    def saturation(self) -> Saturation:
        """Tau from the step-time model: the prefill rate of one full step, times the wait."""
        chunk = float(self.max_batched_tokens)
        rate = chunk / float(self.machine.steps.step_s(None, None, chunk, 0.0))
        return saturation(rate, self.wait_s, "step-time model")


@dataclass(frozen=True, slots=True)
class Answered:
    """One request's times and what its replica had cached."""

    replica: str
    ttft_s: float
    total_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run. `loads` is each replica's mean number of requests there while anything ran."""

    answers: Sequence[Answered]
    loads: Sequence[float]
    lasted_s: float

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return sum(one.prompt_tokens - one.cached_tokens for one in self.answers)

    @property
    def max_over_mean(self) -> float:
        """The most loaded replica beside the mean."""
        return max(self.loads) * len(self.loads) / sum(self.loads)

    def ttft_s(self, share: float) -> float:
        """A percentile of the time to the first token, nearest rank."""
        return _rank([one.ttft_s for one in self.answers], share)

    def total_s(self, share: float) -> float:
        """A percentile of the whole time."""
        return _rank([one.total_s for one in self.answers], share)

    def goodput_per_s(self, ttft_s: float) -> float:
        """Requests a second whose first token came within `ttft_s`."""
        return sum(one.ttft_s <= ttft_s for one in self.answers) / self.lasted_s


def simulate(talks: Sequence[Talk], setup: Setup) -> Outcome:
    """Route all talks to their ends."""
    world = _World(setup)
    for talk in talks:
        world.ask(talk.at_s, talk, 0)
    return world.run()


@dataclass(slots=True)
class _Running:
    """A request at a replica."""

    talk: Talk
    number: int
    sent: Sent
    asked_s: float
    left: int
    cached: int = 0
    first_s: float | None = None

    @property
    def turn(self) -> Turn:
        return self.talk.turns[self.number]


@dataclass(slots=True)
class _Server:
    """One replica: its scheduler, the router's view of it, and what runs there."""

    view: Replica
    batcher: Batcher
    running: dict[str, _Running] = field(default_factory=dict)
    is_stepping: bool = False
    load_s: float = 0.0
    since_s: float = 0.0

    def count(self, now_s: float) -> None:
        """Add up the load until now, before it changes."""
        self.load_s += len(self.running) * (now_s - self.since_s)
        self.since_s = now_s


class _World:
    """The clock, the replicas and the router."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._now_s = 0.0
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = count()
        self._chance = random.Random(setup.seed)
        blocks = setup.machine.kv_tokens // setup.block_tokens
        self._index = PrefixIndex(blocks)
        self._servers = {
            f"r{number}": _Server(
                Replica(f"r{number}", State.READY, frozenset({_MODEL}), slots=setup.max_seqs),
                Batcher(
                    Limits(setup.max_seqs, setup.max_batched_tokens),
                    BlockBook(blocks, setup.block_tokens),
                ),
            )
            for number in range(setup.replicas)
        }
        self._views = [server.view for server in self._servers.values()]
        self._saturation = setup.saturation
        self._last = ""
        self._answers: list[Answered] = []

    def ask(self, at_s: float, talk: Talk, number: int) -> None:
        """A turn will be asked then."""
        self._at(at_s, _ARRIVAL, lambda: self._arrive(talk, number))

    def run(self) -> Outcome:
        """Until nothing happens any more."""
        while self._events:
            self._now_s, _, _, act = heapq.heappop(self._events)
            act()
        loads = [server.load_s / self._now_s for server in self._servers.values()]
        return Outcome(self._answers, loads, self._now_s)

    def _at(self, at_s: float, rank: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, rank, next(self._number), act))

    def _arrive(self, talk: Talk, number: int) -> None:
        turn = talk.turns[number]
        blocks = turn.stream[: turn.prompt_tokens // self._setup.block_tokens]
        server, sent = self._route(talk.name, turn, blocks)
        server.count(self._now_s)
        name = f"{talk.name}/{number}"
        server.running[name] = _Running(talk, number, sent, self._now_s, turn.output_tokens)
        hashes = [block.to_bytes(16) for block in turn.stream]
        server.batcher.add(name, turn.prompt_tokens, turn.output_tokens, hashes)
        if not server.is_stepping:
            self._step(server)

    def _route(self, session: str, turn: Turn, blocks: Sequence[int]) -> tuple[_Server, Sent]:
        length = max(turn.prompt_tokens / self._setup.block_tokens, 1.0)
        request = Request(
            _MODEL,
            input_tokens=turn.prompt_tokens,
            warm_tokens=self._index.warm_tokens(blocks, turn.prompt_tokens, length),
            continues=self._index.continues(blocks),
            session=session,
            chance=self._chance.getrandbits(64),
        )
        now_ns = round(self._now_s * 1e9)
        rule, bound = self._setup.rule, self._saturation
        answer = route(View(rule, request, self._views, self._last, now_ns, bound))
        assert not isinstance(answer, NoRoute), answer
        self._last = answer.replica
        self._index.record(answer.replica, blocks)
        server = self._servers[answer.replica]
        return server, server.view.dispatched(answer.uncached_tokens)

    def _step(self, server: _Server) -> None:
        """Begin the next step, where there is something to do."""
        step = server.batcher.decide()
        server.is_stepping = bool(step.chunks)
        for admitted in step.admitted:
            one = server.running[admitted.id]
            if one.first_s is None:  # not of one that was preempted and finds its own blocks
                one.cached = min(admitted.cached_tokens, one.turn.prompt_tokens)
        if step.chunks:
            ends_s = self._now_s + self._setup.machine.step_s(step)
            self._at(ends_s, _STEP, lambda: self._commit(server, step))

    def _commit(self, server: _Server, step: Step) -> None:
        server.batcher.commit(step)
        for chunk in step.chunks:
            if chunk.samples:
                self._said(server, chunk.id)
        self._step(server)

    def _said(self, server: _Server, name: str) -> None:
        """A request has one more token, perhaps its first or its last."""
        one = server.running[name]
        if one.first_s is None:
            one.first_s = self._now_s
            one.sent.prefilled()
        one.left -= 1
        if one.left:
            return
        server.batcher.finish(name)
        server.count(self._now_s)
        del server.running[name]
        one.sent.finished()
        self._answers.append(
            Answered(
                server.view.id,
                one.first_s - one.asked_s,
                self._now_s - one.asked_s,
                one.turn.prompt_tokens,
                one.cached,
                one.turn.output_tokens,
            )
        )
        if one.number + 1 < len(one.talk.turns):
            self.ask(self._now_s + one.talk.think_s, one.talk, one.number + 1)


def _rank(values: list[float], share: float) -> float:
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]
