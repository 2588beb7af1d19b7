"""Speculative decoding: what guesses are worth, until which batch they are free, which method."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.physics.roofline import ridge_tokens
from ridgeline.physics.speculation import (
    accepted_length,
    candidates_acceptance,
    check_cost,
    free_batch,
)
from ridgeline.quantity import Number, Quantity, floor, given, largest
from ridgeline.serving.plan.decode import one_token
from ridgeline.topics import DTYPES, Answer, amount, an_accelerator, choice, count, topic
from ridgeline.working.formula import bound


def _critical(accelerator: Accelerator, dtype: str) -> Quantity:
    """Batch at which reading the weights takes as long as multiplying with them."""
    rate, bandwidth = accelerator.flop_per_s(dtype), accelerator.memory_bytes_per_s
    tokens = ridge_tokens(rate, bandwidth, dtype_bytes(dtype))
    return (tokens / one_token()).named("critical_batch", "sequences")


@topic("speculative-decoding", subject="serving")
def speculative_decoding(
    drafts: Number = count(4, "Tokens that are guessed before one check."),
    acceptance: Number = amount("0.7", "", "Chance that a guess holds.", most="0.999"),
    batch: Number = count(16, "Sequences in the step.", noun="sequences"),
    draft_cost: Number = amount("0.05", "", "One guess, in steps of the target model."),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights and the arithmetic."),
) -> Answer:
    """Tokens that a step of speculative decoding keeps, and the batch until which it is free.

    Checking reads the weights once for all guesses, so it costs nothing more while memory binds;
    the cache's own reads are the same with and without.
    """
    critical = _critical(accelerator, dtype)
    length = accepted_length(acceptance, drafts)
    free = free_batch(critical, drafts + 1)
    check = check_cost(batch, drafts + 1, critical)
    step = (check + drafts * draft_cost).named("step_cost", "steps")
    speedup = length / step
    return Answer(
        "{drafts} guesses at {acceptance} keep {tokens_per_step} tokens a step; checking is free "
        "to a batch of {free_batch}, and at {batch} decoding is {speedup} as fast",
        {
            "tokens_per_step": length.named("tokens_per_step"),
            "free_batch": floor(free).named("free_batch", "sequences"),
            "speedup": speedup.named("speedup", "x"),
            "step_cost": step,
            "critical_batch": critical,
        },
        notes=(
            "Four guesses do not give four tokens: each one needs all before it to hold.",
            "Beyond the free batch the target's arithmetic grows with every guess, so a busy "
            "server loses what an idle one gains.",
        ),
    )


@dataclass(frozen=True, slots=True)
class Method:
    """One way to guess: acceptance by depth, candidates at each depth, what guessing costs."""

    name: str
    acceptances: tuple[Quantity, ...]
    candidates: Number
    draft_cost: Quantity

    def length(self) -> Quantity:
        """Tokens kept: each depth counts where all depths before it held."""
        reached = candidates_acceptance(self.acceptances[0], self.candidates)
        kept = 1 + reached
        for acceptance in self.acceptances[1:]:
            reached = reached * candidates_acceptance(acceptance, self.candidates)
            kept = kept + reached
        return kept.named(f"{self.name}_accepted_length")

    def checked(self) -> Quantity:
        """Tokens that the target checks: all of the tree, and its own."""
        level = given(self.candidates) if isinstance(self.candidates, int) else self.candidates
        nodes = 1 + level
        for _ in self.acceptances[1:]:
            level = level * self.candidates
            nodes = nodes + level
        return nodes.named(f"{self.name}_checked")


@topic("speculation-method", subject="serving")
def speculation_method(
    drafts: Number = count(4, "Depth: tokens guessed in a row.", most=16),
    acceptance: Number = amount("0.7", "", "Draft model: chance that a guess holds.", most="0.999"),
    draft_cost: Number = amount("0.08", "", "Draft model: one pass, in steps of the target."),
    head_acceptance: Number = amount("0.6", "", "Heads: chance of the first one.", most="0.999"),
    head_fade: Number = amount("0.8", "", "Heads: what each further one keeps of it.", most="1"),
    head_cost: Number = amount("0.01", "", "Heads: one of them, in steps of the target."),
    head_candidates: Number = count(2, "Heads: candidates at each depth."),
    feature_acceptance: Number = amount(
        "0.75", "", "Features: chance that a guess holds.", most="0.999"
    ),
    feature_cost: Number = amount("0.03", "", "Features: one pass of its layer, in steps."),
    feature_candidates: Number = count(2, "Features: candidates at each depth of the tree."),
    batch: Number = count(1, "Sequences in the step.", noun="sequences"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights and the arithmetic."),
) -> Answer:
    """Which way to speculate: a draft model, extra heads, or a feature-level tree.

    A draft model guesses one chain, token by token. Heads guess all depths in one pass without
    seeing each other, so that deeper ones hold less often. A feature-level drafter (one layer on
    the target's features) is run once a depth and grows a tree.
    """
    depth = int(drafts.value)
    heads, features = _fading(head_acceptance, head_fade, depth), (feature_acceptance,) * depth
    methods = (
        Method("draft", (acceptance,) * depth, 1, drafts * draft_cost),
        Method("heads", heads, head_candidates, drafts * head_cost),
        Method("features", features, feature_candidates, drafts * feature_cost),
    )
    critical = _critical(accelerator, dtype)
    found = {method.name: _told(method, batch, critical) for method in methods}
    speed = largest(**{name: row["speedup"] for name, row in found.items()})
    economy = largest(**{name: row["per draft cost"] for name, row in found.items()})
    ranked = sorted(found, key=lambda name: -float(found[name]["per draft cost"].value))
    return Answer(
        f"{_NAMES[bound(speed)]} is fastest, {{speedup}} the plain step's rate; by accepted length "
        f"per draft cost: {', '.join(_NAMES[name] for name in ranked)}",
        {
            "speedup": speed.named("speedup", "x"),
            "best_per_draft_cost": economy.named("best_per_draft_cost"),
            **{f"{name}_length": row["accepted length"] for name, row in found.items()},
        },
        table=tuple({"method": _NAMES[name]} | found[name] for name in ranked),
        notes=(
            "The cheapest guesses are not always the fastest: what counts in the end is length "
            "over the whole step, check included.",
            "Wide trees multiply the tokens to check; at larger batches a chain wins.",
            "Acceptance and cost are measured on your own traffic; these are starting points.",
        ),
    )


_NAMES = {
    "draft": "draft model",
    "heads": "multi-head",
    "features": "feature-level tree",
    "": "none",
}


def _fading(first: Quantity, fade: Quantity, depth: int) -> tuple[Quantity, ...]:
    """Acceptance of each head: the next one keeps a share of it."""
    return tuple(first * fade**level for level in range(depth))


def _told(method: Method, batch: Number, critical: Quantity) -> dict[str, Quantity]:
    length, checked = method.length(), method.checked()
    check = check_cost(batch, checked, critical).named(f"{method.name}_check_cost", "steps")
    draft = method.draft_cost.named(f"{method.name}_draft_cost", "steps")
    return {
        "accepted length": length,
        "tokens checked": checked,
        "draft cost": draft,
        "check cost": check,
        "per draft cost": (length / draft).named(f"{method.name}_per_draft_cost"),
        "speedup": (length / (check + draft)).named(f"{method.name}_speedup", "x"),
    }
