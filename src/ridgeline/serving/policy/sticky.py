"""Who keeps a prompt whose beginning is warm somewhere: sticky until saturated. Pure.

Called by `route`. Computing a prompt where its beginning is cached saves prefill; always going
there makes a hot spot. Two kinds of warmth are told apart.

A conversation's next turn stays where the conversation is, for nobody else will ever ask for that
text, until the replica is saturated. Two bounds say so, and each bounds one resource:

    prefill    tokens in flight and not yet computed: at most `tau` more there than on a cold one
    decode     requests there: at most `EVEN` times the mean, or the mean and `SLACK` more

A beginning that many prompts share is worth having on many replicas. So it draws nobody: it only
makes a replica cheaper, by what is saved now less a request's worth, and load decides the rest.

tau = peak prefill tokens/s x the wait that is allowed for the sake of warmth, so it is a number of
the step-time model or of a measurement, and no weight that somebody tuned for one workload.
Source: llm-d's prefix-cache affinity, 2026 (prefill); consistent hashing with bounded loads,
Mirrokni et al. 2016 (decode); decisions/0020 for what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WARM = 0.8  # a replica is warm that has this share of what the warmest one has
EVEN = 1.25
SLACK = 6
REQUEST_TOKENS = 512  # prompt tokens that delay others as much as one more request beside them
ADAPTER_S = 0.25  # to load an adapter that a replica does not hold


@dataclass(frozen=True, slots=True)
class Saturation:
    """When a warm replica is too busy: `tokens` is tau, `source` says where it comes from.

    `adapter_tokens` is what loading an adapter costs, as prompt tokens.
    """

    tokens: float = 4_000.0
    source: str = "assumed: 8,000 tokens/s for 0.5 s"
    adapter_tokens: int = 2_000


def saturation(tokens_per_s: float, wait_s: float, source: str, *, gateways: int = 1) -> Saturation:
    """Tau for this peak prefill rate of a replica and this wait for the sake of warmth.

    Where several gateways send to the same replicas, each takes its share of tau: none sees the
    others' prompts in flight.
    """
    shared = f", shared by {gateways} gateways" if gateways > 1 else ""
    said = f"{source}: {tokens_per_s:,.0f} tokens/s for {wait_s:g} s{shared}"
    adapter = round(tokens_per_s * ADAPTER_S)
    return Saturation(tokens_per_s * wait_s / gateways, said, adapter)


@dataclass(slots=True)  # not frozen, which would treble what one costs: a decision makes many
class Score:
    """What a decision knew of one replica; among those it kept the lowest `cost` wins.

    `backlog_tokens` were sent there and are not computed yet. Of this prompt `warm_tokens` are
    believed to be cached there, and `uncached_tokens` are what it would add.
    """

    replica: str
    load: int
    backlog_tokens: int = 0
    warm_tokens: int = 0
    uncached_tokens: int = 0
    cost: int = 0


def cost(load: int, backlog_tokens: int, uncached_tokens: int, shared_tokens: int = 0) -> int:
    """What a request waits for and slows down there, in prompt tokens.

    `shared_tokens` are warm there and the beginning of many prompts. A copy on another replica
    would save the next prompts there as much, so the first of what they save does not count.
    """
    spread = min(shared_tokens // 2, REQUEST_TOKENS)
    return backlog_tokens + uncached_tokens + spread + REQUEST_TOKENS * load


@dataclass(frozen=True, slots=True)
class Kept:
    """The replicas among which the cheapest is taken, and why these."""

    scores: Sequence[Score]
    reason: str


def keep(scores: Sequence[Score], saturation: Saturation, *, continues: bool) -> Kept:
    """Of a conversation the warm replicas while they are not saturated, else the even ones."""
    most = _most(scores)
    even = [score for score in scores if score.load + 1 <= most]
    best = max(score.warm_tokens for score in scores)
    if not best or not continues:
        return Kept(even, "a shared beginning" if best else "nothing is warm")
    enough = WARM * best
    idle = [score for score in even if score.warm_tokens >= enough]
    if not idle:
        warm = [score for score in scores if score.warm_tokens >= enough]
        return Kept(even, f"{_names(warm)} warm but with far more requests than the mean")
    cold = [score.backlog_tokens for score in even if score.warm_tokens < enough]
    gap = min(score.backlog_tokens for score in idle) - min(cold, default=0)
    if cold and gap > saturation.tokens:
        said = f"{gap:,} tokens more wait there than elsewhere, over tau {saturation.tokens:,.0f}"
        return Kept(even, f"{_names(idle)} warm but saturated: {said} ({saturation.source})")
    return Kept(idle, "its conversation is there")


def _most(scores: Sequence[Score]) -> float:
    """The most load that is not far beyond the mean, one more request counted."""
    mean = (sum([score.load for score in scores]) + 1) / len(scores)
    return max(EVEN * mean, mean + SLACK)


def _names(scores: Sequence[Score]) -> str:
    names = [score.replica for score in scores]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
