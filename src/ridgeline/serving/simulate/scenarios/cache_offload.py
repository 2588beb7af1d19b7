"""A paused conversation's cache: loaded from a tier, or computed again (ledger row S071).

A conversation is answered, another one drives its cache out to the tier, and then it goes on: how
long its next first token takes with its cache loaded, and with all of it computed again. At one
bandwidth both take as long. The formula says it is the cache's bytes over the time of the prefill.
"""

from dataclasses import dataclass, replace

from ridgeline.physics.prompts import break_even_bytes_per_s
from ridgeline.physics.step_time import StepTime
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.tiers import Rule
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.tiers import Tier, Tiers
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

_BLOCK_TOKENS = 16
_NEW_TOKENS = 512  # of the next turn: enough that arithmetic binds its step, as it does a prompt's
_EVERY_S = 1000.0  # between the requests, so that none waits for another
_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Offload:
    """One length; a bandwidth above the break-even makes loading the quicker way."""

    prompt_tokens: int
    cache_bytes: float
    formula_bytes_per_s: float
    simulated_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Turn:
    """The conversation's next turn: its first token, and what of it a cache gave."""

    ttft_s: float
    cached_tokens: int


def with_params(on: Machine, params: float, cache_bytes_per_token: float) -> Machine:
    """The same with as many parameters for each token, and a cache that is as large."""
    assert isinstance(on.steps, StepTime), "a model of the catalog"
    shape = replace(on.steps.shape, flop_per_token=2 * params)
    return Machine(StepTime(shape, on.steps.coefficients), on.kv_tokens, cache_bytes_per_token)


def offload(on: Machine, prompt_tokens: int) -> Offload:
    """Where both ways take as long, by formula and by simulation."""
    recompute_s = on.steps.step_s(None, None, float(prompt_tokens), prompt_tokens / 2)
    cache_bytes = prompt_tokens * on.cache_bytes_per_token
    by_hand = break_even_bytes_per_s(cache_bytes, recompute_s)
    computed_s = turn(on, prompt_tokens, 1e9, "recompute").ttft_s
    low, high = 1e8, 1e12
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        if turn(on, prompt_tokens, middle, "load").ttft_s > computed_s:
            low = middle
        else:
            high = middle
    return Offload(prompt_tokens, cache_bytes, float(by_hand), high)


def turn(on: Machine, prompt_tokens: int, bytes_per_s: float, rule: Rule = "quicker") -> Turn:
    """The next turn of a conversation whose cache is in the tier."""
    whole = prompt_tokens // _BLOCK_TOKENS
    mine, other = tuple(range(whole)), tuple(range(whole, 2 * whole))
    requests = [
        Request(0.0, prompt_tokens, 1, mine),
        Request(_EVERY_S, prompt_tokens + _NEW_TOKENS, 1, other),
        Request(2 * _EVERY_S, prompt_tokens + _NEW_TOKENS, 1, mine),
    ]
    room = prompt_tokens + _NEW_TOKENS + _BLOCK_TOKENS  # of one conversation, not of two
    tier = Tier("host", 1e15, bytes_per_s)
    engine = Engine(
        Machine(on.steps, room, on.cache_bytes_per_token), 8, 8192, _BLOCK_TOKENS,
        tiers=Tiers((tier,), rule),
    )  # fmt: skip
    clients = OpenLoop(requests, "chat", block_tokens=_BLOCK_TOKENS)
    outcome = simulate(Serving((Model("chat", engine),)), clients)
    return Turn(float(outcome.ttft_s()[-1]), int(outcome.columns["cached_tokens"][-1]))
