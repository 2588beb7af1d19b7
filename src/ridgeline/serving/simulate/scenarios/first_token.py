"""A first token within 200 ms for 99 of 100: what may come in, and what it costs (row S142).

One node prefills one prompt after the other. A door before it knows what it let in and how fast the
node is, and lets in what can still be served as promised. The same requests come without the door,
too.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ridgeline.physics.step_time import StepTime
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.admit import Refuse
from ridgeline.serving.policy.first_token import Budget, admit_prompt
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request

#: Tokens of a prompt, and the share of prompts that have so many. Some are too long for any node.
MIX: Mapping[int, float] = {300: 0.60, 1_000: 0.30, 2_500: 0.09, 6_000: 0.01}


@dataclass(frozen=True, slots=True)
class Kept:
    """One load. Shares are of all requests, `busy` of the node's time.

    The last is without a door, of prompts that are not too long.
    """

    per_s: float
    busy: float
    refused_long: float
    refused: float
    p99_s: float
    p99_without_s: float


def linear(on: Machine, params: float) -> Machine:
    """The same with 2 FLOP a parameter and token, and nothing for attention."""
    assert isinstance(on.steps, StepTime), "a model of the catalog"
    shape = replace(
        on.steps.shape, flop_per_token=2 * params, attention_flop_per_token_token=0.0
    )  # fmt: skip
    return Machine(StepTime(shape, on.steps.coefficients), on.kv_tokens)


def budget(on: Machine, promise_s: float = 0.2) -> Budget:
    """Of a promise: 30 ms network, 5 ms routing, 20 ms queue."""
    tokens_per_s = 1e4 / on.steps.step_s(None, None, 1e4, 0.0)
    return Budget(promise_s, 0.030, 0.005, 0.020, float(tokens_per_s))


def kept(
    on: Machine, per_s: float, mix: Mapping[int, float] = MIX, *, count: int = 5000, seed: int = 0
) -> Kept:
    """The same requests with a door and without."""
    split = budget(on)
    engine = Engine(
        on, 1, 1 << 15, arrive_s=split.network_s / 2 + split.routing_s,
        deliver_s=split.network_s / 2,
    )  # fmt: skip
    serving = Serving((Model("chat", engine, slots=count),))
    requests = list(_requests(per_s, mix, count, seed))
    with_door = simulate(serving, Door(requests, split))
    without = simulate(serving, OpenLoop(requests, "chat"))
    refused = with_door.columns["end"] == End.REFUSED
    is_long, too_long = (
        one.columns["prompt_tokens"] > split.limit_tokens for one in (with_door, without)
    )
    return Kept(
        per_s,
        with_door.replicas[0].busy_s / with_door.lasted_s,
        float((refused & is_long).mean()),
        float((refused & ~is_long).mean()),
        _p99(with_door.ttft_s()),
        _p99(without.ttft_s()[~too_long]),
    )


class Door(OpenLoop):
    """Asks for what can be served as promised; the rest is refused here."""

    def __init__(self, requests: Iterable[Request], split: Budget) -> None:
        super().__init__(requests, "chat")
        self._split = split
        self._free_s = 0.0  # when the node is, by what was let in

    def ask(self, asked: Asked) -> None:
        """It goes on to the node, or back."""
        world, rate = self._world, self._split.tokens_per_s
        now_s = world.timeline.now_ns / NS
        begins_s = max(now_s, self._free_s)
        ahead_tokens = round((begins_s - now_s) * rate)
        verdict = admit_prompt(asked.prompt_tokens, ahead_tokens, self._split)
        if isinstance(verdict, Refuse):
            asked.end, asked.reason = End.REFUSED, verdict.reason
            asked.at_ns = asked.done_ns = world.timeline.now_ns
            world.open += 1
            world.ended(asked)
            return
        self._free_s = begins_s + asked.prompt_tokens / rate
        super().ask(asked)


def _requests(per_s: float, mix: Mapping[int, float], count: int, seed: int) -> Iterator[Request]:
    chances, at_s = Chances(seed), 0.0
    for number in range(count):
        at_s += chances.exponential("gap", number) / per_s
        yield Request(at_s, _tokens(mix, chances.share("prompt", number)), 1)


def _tokens(mix: Mapping[int, float], drawn: float) -> int:
    """The prompt that a number of 0 to 1 stands for."""
    for tokens, share in mix.items():
        drawn -= share
        if drawn < 0:
            return tokens
    return max(mix)


def _p99(values: np.ndarray) -> float:
    return float(np.percentile(values, 99))
