"""Prefill and decode on nodes of their own: how many of each, and from which load (S147, S059).

By arithmetic both pools are as busy where a prefill node meets `pool_ratio` decode nodes, and apart
is faster from the load on at which prompts stretch streams by more than a cache takes on its way.
Both are simulated: each split of some nodes with as many clients as it can take, and the load at
which a request takes as long together as apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ridgeline.physics.prompts import decode_steps, pool_ratio, split_break_even_hz
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.simulate.clients import ClosedLoop, OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Link, Model, Role, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request, parse_arrivals, parse_sizes, synthetic


@dataclass(frozen=True, slots=True)
class Mix:
    """What every request is like, and how many sequences a decode node works on at once."""

    prompt_tokens: int = 4000
    output_tokens: int = 300
    batch: int = 64


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and the link that its caches go over."""

    machine: Machine
    link: Link

    def prefill_s(self, mix: Mix) -> float:
        """A prompt, whole."""
        prompt = mix.prompt_tokens
        return float(self.machine.steps.step_s(None, None, prompt, prompt / 2))

    def decode_s(self, mix: Mix, batch: int) -> float:
        """An answer, among so many; its first token comes from the prompt."""
        context = mix.prompt_tokens + mix.output_tokens / 2
        step_s = self.machine.steps.step_s(batch, batch * context)
        return float(value_of(decode_steps(mix.output_tokens - 1)) * step_s)

    def transfer_s(self, mix: Mix) -> float:
        """A prompt's cache on its way."""
        each = self.machine.cache_bytes_per_token / self.link.bytes_per_s
        return mix.prompt_tokens * each + self.link.latency_s


@dataclass(frozen=True, slots=True)
class Split:
    """So many nodes for each part, and the requests a second that they serve when saturated."""

    prefill: int
    decode: int
    per_s: float

    @property
    def ratio(self) -> float:
        """Of the two."""
        return self.prefill / self.decode


@dataclass(frozen=True, slots=True)
class Crossover:
    """The load of a node from which apart is faster: by the formula, and simulated."""

    formula_per_s: float
    simulated_per_s: float


def balanced_ratio(node: Node, mix: Mix) -> float:
    """Prefill nodes for each decode node, by arithmetic."""
    ratio = pool_ratio(node.prefill_s(mix), node.decode_s(mix, mix.batch), mix.batch)
    return float(value_of(ratio))


def splits(node: Node, mix: Mix, nodes: int, prefill: Sequence[int]) -> list[Split]:
    """What each split of the nodes serves at most."""
    return [_saturated(node, mix, one, nodes - one) for one in prefill]


def best(some: Sequence[Split]) -> Split:
    """The one that serves most."""
    return max(some, key=lambda one: one.per_s)


def crossover(node: Node, mix: Mix, *, requests: int = 2000, rounds: int = 7) -> Crossover:
    """Where both take as long: bisection between a quarter of the formula's load and four times."""
    alone_s = node.decode_s(mix, 1)
    hz = split_break_even_hz(node.prefill_s(mix), node.transfer_s(mix), alone_s)
    formula = float(value_of(hz))
    low, high = formula / 4, formula * 4
    for _ in range(rounds):
        middle = sqrt(low * high)
        if _saved_s(node, mix, middle, requests) > 0:
            high = middle
        else:
            low = middle
    return Crossover(formula, sqrt(low * high))


def _pools(node: Node, mix: Mix, prefill: int, decode: int) -> Serving:
    engine = _engine(node, mix)
    first = Model(
        "prefill", engine, prefill, serves="chat", role=Role.PREFILL, link=node.link,
        rule="least-load",
    )  # fmt: skip
    second = Model("decode", engine, decode, serves="chat", role=Role.DECODE, slots=mix.batch)
    return Serving((first, second))


def _engine(node: Node, mix: Mix) -> Engine:
    """A prompt is one step: so a stream waits for it, and no longer."""
    most = mix.prompt_tokens + mix.batch
    return Engine(node.machine, mix.batch, most, prefix_caching=False)


def _saturated(node: Node, mix: Mix, prefill: int, decode: int) -> Split:
    """Each decode node full and some prompts at each prefill node; the middle of the run counts."""
    clients = decode * mix.batch + 4 * prefill
    asks = [Request(0.0, mix.prompt_tokens, mix.output_tokens)] * (5 * clients)
    outcome = simulate(_pools(node, mix, prefill, decode), ClosedLoop(asks, "chat", clients))
    done_ns = np.sort(outcome.columns["done_ns"])
    first, last = done_ns[2 * clients], done_ns[4 * clients]
    return Split(prefill, decode, 2 * clients / ((last - first) / NS))


def _saved_s(node: Node, mix: Mix, per_s: float, requests: int) -> float:
    """How much sooner a request is done apart, on average, at a load of one node each."""
    arrivals = parse_arrivals("poisson")
    prompt, output = (
        parse_sizes(str(size), where="mix") for size in (mix.prompt_tokens, mix.output_tokens)
    )
    drawn = synthetic(arrivals, prompt, output, rate_per_s=per_s, seed=7)
    asks = [request for _, request in zip(range(requests), drawn, strict=False)]
    together = Serving((Model("chat", _engine(node, mix)),))
    both = (together, _pools(node, mix, 1, 1))
    first, second = (_mean_s(simulate(one, OpenLoop(asks, "chat"))) for one in both)
    return first - second


def _mean_s(outcome: Outcome) -> float:
    return float(outcome.e2e_s().mean())
