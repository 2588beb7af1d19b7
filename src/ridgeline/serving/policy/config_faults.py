"""Which setting of a deployment explains that it does not answer as its reference does.

What was read comes first (context, tokenizer, template), then what was computed with it (numeric
type, weights), then what was drawn from that (sampling defaults): each is looked for only where
what comes before it is the same, so that one fault is not told twice and two are both found.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ridgeline.serving.policy.answers import Category, Pair, measure
from ridgeline.serving.policy.draws import judge_draws


@dataclass(frozen=True, slots=True)
class Criteria:
    """What may differ: how it was measured is in docs/guide/evaluate.md.

    `difference`s are of `Measured`: up to `same_difference` it is rounding, up to
    `type_difference` another numeric type, beyond it other weights. `same_top` is the least share
    of places with the same likeliest token, `deviations` the standard errors by which drawn tokens
    may be likelier than they were.
    """

    same_difference: float = 0.03
    type_difference: float = 0.5
    same_top: float = 0.9
    deviations: float = 4.0


CRITERIA = Criteria()
#: For one engine on one kind of processor, where nothing is rounded otherwise.
EXACT = Criteria(same_difference=1e-6)


#: What a numeric type shows in. Not long prompts, which show a context, nor structured output:
#: some engines tell log-probabilities after what a schema forbids was struck out.
_TELLING = (Category.CHAT, Category.CONVERSATION, Category.CODE, Category.CHARACTERS)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is set up otherwise than for the reference, and how that is known.

    `kind` is context, tokenizer, template, dtype, weights, sampling defaults, structured output,
    or refused.
    """

    kind: str
    evidence: str


def config_faults(
    pairs: Sequence[Pair], failed: AbstractSet[Category], criteria: Criteria, *, repeats: bool
) -> Iterable[Fault]:
    """The faults that explain the categories that failed; `repeats` as in `judge_draws`."""
    if not failed:
        return
    yield from _context(pairs, failed)
    yield from _prompts(pairs, failed)
    numbers = _numbers(pairs, criteria)
    yield from numbers
    if Category.DEFAULTS in failed and "weights" not in {fault.kind for fault in numbers}:
        yield from _defaults(pairs, criteria, repeats=repeats)
    refused = [pair for pair in pairs if pair.seen.refused and pair.category is not Category.LONG]
    if refused:
        yield Fault("refused", f"{refused[0].name}: {refused[0].seen.refused}")
    elif failed == {Category.STRUCTURED}:
        yield Fault("structured output", "only what has a form is answered otherwise")


def _context(pairs: Sequence[Pair], failed: AbstractSet[Category]) -> list[Fault]:
    """Long prompts are refused or read shorter, or only they are answered otherwise."""
    long = [pair for pair in pairs if pair.category is Category.LONG]
    for pair in long:
        if pair.seen.refused:
            told = f"a prompt of {pair.reference.prompt_tokens} tokens is refused"
            return [Fault("context", f"{told}: {pair.seen.refused}")]
    shorter = [abs(pair.missing_tokens) for pair in pairs if pair.category is not Category.LONG]
    elsewhere = max(shorter, default=0)  # another template makes every prompt so much shorter
    for pair in long:
        whole = pair.reference.prompt_tokens or 0
        if pair.missing_tokens > 2 * elsewhere and pair.missing_tokens > whole / 50:
            read = whole - pair.missing_tokens
            return [Fault("context", f"of a prompt of {whole} tokens {read} were read")]
    if failed == {Category.LONG}:
        return [Fault("context", "only long prompts are answered otherwise")]
    return []


def _prompts(pairs: Sequence[Pair], failed: AbstractSet[Category]) -> list[Fault]:
    """Another tokenizer changes what plain completions read too, another template does not."""
    answered = [
        pair for pair in pairs if not pair.seen.refused and pair.category is not Category.LONG
    ]
    other = [pair for pair in answered if not pair.has_same_prompt]
    chats = [pair for pair in answered if not pair.is_raw]
    if raw := [pair for pair in other if pair.is_raw]:
        return [Fault("tokenizer", f"the text of {raw[0].name} became other tokens")]
    if other:
        one = other[0]
        counts = f"{one.reference.prompt_tokens} then, {one.seen.prompt_tokens} now"
        told = f"{len(other)} of {len(chats)} chats became other tokens"
        return [Fault("template", f"{told} ({one.name}: {counts}), plain text did not")]
    is_chat_only = {Category.CHAT, Category.CONVERSATION} <= failed
    if is_chat_only and Category.CHARACTERS not in failed and len(chats) < len(answered):
        return [Fault("template", "chats are answered otherwise, plain text is not")]
    return []


def _numbers(pairs: Sequence[Pair], criteria: Criteria) -> list[Fault]:
    """Where the same was read, how far apart log-probabilities are in the worst category."""
    read_alike = [pair for pair in pairs if pair.has_same_prompt and not pair.seen.refused]
    found = {
        category: measured
        for category in Category
        if category in _TELLING
        and (measured := measure(pair for pair in read_alike if pair.category is category))
    }
    if not found:
        return []
    worst = max(found, key=lambda category: found[category].difference)
    measured = found[worst]
    if measured.difference <= criteria.same_difference:
        return []
    told = (
        f"where the same tokens were read, log-probabilities of {worst} differ by "
        f"{measured.difference:.3f} and {1 - measured.same_top:.0%} of its likeliest tokens"
    )
    is_type = measured.difference <= criteria.type_difference
    return [Fault("dtype" if is_type else "weights", told)]


def _defaults(pairs: Sequence[Pair], criteria: Criteria, *, repeats: bool) -> Iterable[Fault]:
    """Where the same was read, what was drawn is not as it was."""
    drawn = [
        pair
        for pair in pairs
        if pair.category is Category.DEFAULTS and pair.has_same_prompt and pair.seen.steps
    ]
    if drawn:
        passed, told = judge_draws(drawn, criteria.deviations, repeats=repeats)
        if not passed:
            yield Fault("sampling defaults", told)
