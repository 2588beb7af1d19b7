"""Whether a server draws as it did, where a request says nothing of sampling.

A seed decides: of a server that computes the same to the last digit the same tokens are wanted, and
any others are other defaults. Where rounding differs a draw may fall to the next token, and all
that follows is another text; then what is drawn has to be as likely as it was, by a paired test.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev

from ridgeline.serving.policy.answers import Answer, Pair, common

#: Differences of log-probabilities up to this are none.
_EXACT = 1e-6
#: Of so many answers at least a spread can be told.
_FEWEST = 4


def judge_draws(pairs: Sequence[Pair], deviations: float, *, repeats: bool) -> tuple[bool, str]:
    """Whether they are as in the reference, and how that is known.

    `repeats`: the reference's server gave the same answer to the same seed. `deviations` are the
    standard errors by which draws may be likelier or less likely than they were.
    """
    if repeats and is_exact(pairs):
        share = diverging(pairs)
        told = f"{share:.0%} of tokens drawn without parameters are others, {_shift_text(pairs)}"
        return not share, told if share else "the same tokens are drawn"
    shifts = _shifts(pairs)
    if len(shifts) < _FEWEST:
        return False, "too few log-probabilities came"
    error = stdev(shifts) / sqrt(len(shifts))
    told = f"tokens drawn without parameters are {_shift_text(pairs)}, {error:.2f} is chance"
    return abs(fmean(shifts)) <= deviations * error, told


def is_exact(pairs: Iterable[Pair]) -> bool:
    """Whether log-probabilities are the same to the last digit, wherever the text is."""
    for pair in pairs:
        before, now = pair.reference.steps, pair.seen.steps
        shared = common(before, now) + 1  # at the first other token all before is the same
        for one, other in zip(before[:shared], now[:shared], strict=False):
            both = one.top.keys() & other.top.keys()
            if any(abs(one.top[token] - other.top[token]) > _EXACT for token in both):
                return False
    return True


def diverging(pairs: Iterable[Pair]) -> float:
    """The share of drawn tokens that differ where all before were the same."""
    diverged = drawn = 0
    for pair in pairs:
        before, now = pair.reference.steps, pair.seen.steps
        shared = common(before, now)
        ends = shared < max(len(before), len(now))
        diverged += ends
        drawn += shared + ends
    return diverged / drawn if drawn else 0.0


def _shifts(pairs: Iterable[Pair]) -> list[float]:
    """By answer: how much likelier its tokens are than they were."""
    return [
        _likelihood(pair.seen) - _likelihood(pair.reference)
        for pair in pairs
        if pair.seen.steps and pair.reference.steps
    ]


def _likelihood(answer: Answer) -> float:
    return fmean(step.logprob for step in answer.steps)


def _shift_text(pairs: Iterable[Pair]) -> str:
    shift = fmean(_shifts(pairs) or [0.0])
    return f"on average {abs(shift):.2f} nats {'likelier' if shift > 0 else 'less likely'}"
