"""A guessed token is kept or another is drawn in its place: the target's distribution either way.

A draft guessed tokens, each drawn from its own distribution q; the target gives a distribution p at
each of these positions and at the one after them. Of the guesses the first few are kept:

    rows        [ last known | guess 1 | guess 2 | guess 3 ]    start .. start + 1 + guesses
    kept        [ ······················ ]                       guess 1 held, guess 2 did not
    cache holds up to here ──────────────┘                       `computed`: what is behind is void
    emitted                    guess 1     resampled

A guess x holds with chance min(1, p(x) / q(x)); the first that does not gives way to a draw from
max(0, p - q), normalised, and all behind it is void. So a token leaves with the chance

    q(x) min(1, p(x) / q(x)) + (1 - sum of min(p, q)) max(0, p(x) - q(x)) / (sum of max(0, p - q))
    = min(p, q)(x) + max(0, p - q)(x) = p(x)

which is the target's, whatever the draft. Source: Leviathan et al. 2023, Fast inference from
transformers via speculative decoding; Chen et al. 2023.

A draft without chance (prompt lookup) has q = 1 at its guess: it holds with chance p(x), and the
rest is p without x. To draw from p and to see whether it is the guess is the same thing, which is
what `serving.engine.loop` does: its sampler draws with the chance that position has anyway, so that
a seed gives the same answer with and without guesses. The general rule is for drafts that bring a
distribution (`serving.engine.draft`); chance comes in as numbers, from outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Distribution = Sequence[float]
"""The chance of each token; they sum to 1."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of the guesses `accepted` hold, then comes `token`; the cache is good up to `computed`."""

    accepted: int
    token: int
    computed: int


def verify(
    guesses: Sequence[int],
    drafts: Sequence[Distribution],
    targets: Sequence[Distribution],
    chances: Sequence[float],
    start: int = 0,
) -> Verdict:
    """What a step emits that began at position `start`, the last known token's.

    `drafts` has a distribution for each guess; `targets` and `chances` (numbers in [0, 1)) have one
    more, the last chance being the one that draws.
    """
    assert len(drafts) == len(guesses) == len(targets) - 1 == len(chances) - 1
    for at, guess in enumerate(guesses):
        draft, target = drafts[at], targets[at]
        # Not chance < p / q: a guess that the draft itself finds impossible must not divide by 0.
        if chances[at] * draft[guess] >= target[guess]:
            return _verdict(at, draw(residual(target, draft), chances[-1]), start)
    return _verdict(len(guesses), draw(targets[-1], chances[-1]), start)


def acceptance(target: Distribution, draft: Distribution) -> float:
    """The chance that a guess holds, over all guesses: the part that the distributions share."""
    return sum(map(min, target, draft))


def residual(target: Distribution, draft: Distribution) -> list[float]:
    """What a token is drawn from where a guess did not hold: the target's surplus, normalised."""
    surplus = [p - q if p > q else 0.0 for p, q in zip(target, draft, strict=True)]
    mass = sum(surplus)
    assert mass > 0, "no guess fails where the draft is nowhere below the target"
    return [each / mass for each in surplus]


def draw(distribution: Distribution, chance: float) -> int:
    """The token that `chance` picks: the first whose running sum exceeds it."""
    passed, last = 0.0, 0
    for token, share in enumerate(distribution):
        if share > 0:
            passed += share
            last = token
            if passed > chance:
                break
    return last  # only rounding leads past the end


def _verdict(accepted: int, token: int, start: int) -> Verdict:
    return Verdict(accepted, token, start + 1 + accepted)
