"""How long one answer may get, as far as a gateway knows before it is written. Pure.

What may be used at most is what gets reserved, so whoever has a limit on it needs a bound; where
the client names none, the replica is told ours.
"""

from collections.abc import Iterable

from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.price import Price

#: What is left for an answer though the prompt, as it is estimated, fills the context.
_LEAST_ROOM = 16


def longest(
    asked: int | None, *, usual: int, context_tokens: int | None, prompt_tokens: int
) -> int:
    """The most tokens of one answer: as its client `asked`, else `usual`; the context bounds both.

    A client's own number is not cut by the size of its prompt, which is an estimate: the replica
    knows better, and says so.
    """
    if asked is not None:
        return min(asked, context_tokens or asked)
    if context_tokens is None:
        return usual
    return min(usual, max(_LEAST_ROOM, context_tokens - prompt_tokens))


def needs_bound(limits: Iterable[Limits], price: Price) -> bool:
    """Whether some limit depends on how long the answer gets."""
    return any(
        one.output_tokens_per_minute is not None
        or (one.budget is not None and price.output_usd > 0)
        for one in limits
    )
