"""Speculative decoding: tokens that a step keeps, and what guessing and checking cost.

Costs are in units of one step of the target model at this batch. `critical` is the batch at which
a step's arithmetic takes as long as reading the weights (`roofline.ridge_tokens`).
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, largest


@law
def accepted_length(acceptance: Number, drafts: Number) -> Number:
    """Tokens a step keeps when each guess in a row holds with this chance: (1-a^(k+1))/(1-a).

    The target's own token is counted, so it is at least 1.

    Source: Leviathan et al. 2023, Fast inference from transformers via speculative decoding.
    """
    return (1 - acceptance ** (drafts + 1)) / (1 - acceptance)


@law
def candidates_acceptance(acceptance: Number, candidates: Number) -> Number:
    """Chance that one of the best few candidates is the target's token.

    Each candidate catches the same share of what the better ones missed.

    Source: Miao et al. 2024 (SpecInfer), Cai et al. 2024 (Medusa); a geometric rank is assumed.
    """
    return 1 - (1 - acceptance) ** candidates


@law
def free_batch(critical: Number, checked: Number) -> Number:
    """Sequences a step can hold while checking so many tokens each costs nothing.

    Source: roofline model, Williams et al. 2009.
    """
    return critical / checked


@law
def check_cost(batch: Number, checked: Number, critical: Number) -> Number:
    """A step that checks several tokens a sequence, against one that does not: 1 while free.

    Source: roofline model, Williams et al. 2009.
    """
    plain = largest(memory=1.0, compute=batch / critical)
    return largest(memory=1.0, compute=batch * checked / critical) / plain


@law
def break_even_batch(critical: Number, kept: Number, checked: Number) -> Number:
    """Sequences at which a step that checks so many tokens each gives as much as plain steps.

    The draft is free, and both steps are bound by the weights: the plain one by reading them, the
    other by multiplying with them.

    Source: roofline model, Williams et al. 2009.
    """
    return critical * kept / checked


@law
def speculation_gain(kept: Number, plain_s: Number, checked_s: Number, drafts_s: Number) -> Number:
    """Tokens a second with guesses, over those without.

    Source: Leviathan et al. 2023, with the check's own time in place of a plain step's.
    """
    return kept * plain_s / (checked_s + drafts_s)
