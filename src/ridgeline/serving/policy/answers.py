"""Answers to reference prompts, then and now, and how far apart they are.

At each token of the reference it is asked how likely the deployment finds the tokens that were
likeliest there, and whether the likeliest is the same. Log-probabilities are the model's own, in
nats. `likeness` judges, `config_faults` explains.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp
from statistics import fmean

#: A log-probability this far off, or told as impossible: beyond it there is no more to say.
_FAR = 10.0


class Category(StrEnum):
    """What a prompt is there to find."""

    CHAT = "chat"
    CONVERSATION = "conversation"
    CODE = "code"
    STRUCTURED = "structured"
    CHARACTERS = "characters"
    LONG = "long-context"
    DEFAULTS = "defaults"


@dataclass(frozen=True, slots=True)
class Step:
    """One token of an answer; `top` are the likeliest tokens at its place."""

    token: str
    logprob: float
    top: Mapping[str, float]

    @property
    def likeliest(self) -> str:
        """The token that greedy decoding takes."""
        return max(self.top, key=lambda token: self.top[token], default=self.token)

    def logprob_of(self, token: str) -> float:
        """Of any token; of one that is not among the likeliest, the most that it can be."""
        if token == self.token:
            return self.logprob
        return self.top.get(token, min(self.top.values(), default=self.logprob))

    def difference(self, now: "Step") -> float:
        """By how much the log-probabilities of the likeliest tokens differ, on average.

        Each counts as much as it is likely: rounding moves unlikely tokens most.
        """
        told = self.top or {self.token: self.logprob}
        best = max(told.values())
        weights = {token: exp(logprob - best) for token, logprob in told.items()}
        moved = sum(
            weight * min(abs(told[token] - now.logprob_of(token)), _FAR)
            for token, weight in weights.items()
        )
        return moved / sum(weights.values())


@dataclass(frozen=True, slots=True)
class Answer:
    """What came for a prompt. Ids and counts are None where the server does not tell them.

    `ids` are those of `steps`. `refused` is what the server said instead of answering.
    """

    steps: tuple[Step, ...] = ()
    ids: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    prompt_ids: tuple[int, ...] | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt's answer in the reference, and now.

    The steps of `seen` follow the reference's tokens, as far as the server could be asked.
    `is_raw`: a plain completion, to which no chat template is applied.
    """

    category: Category
    name: str
    reference: Answer
    seen: Answer
    is_raw: bool = False

    @property
    def missing_tokens(self) -> int:
        """By how many tokens the prompt was read shorter than for the reference."""
        before, now = self.reference.prompt_tokens, self.seen.prompt_tokens
        return 0 if before is None or now is None else before - now

    @property
    def has_same_prompt(self) -> bool:
        """Whether the model read the same tokens, as far as the server tells."""
        before, now = self.reference.prompt_ids, self.seen.prompt_ids
        if before is not None and now is not None:
            return before == now
        return self.missing_tokens == 0


@dataclass(frozen=True, slots=True)
class Measured:
    """How alike answers are.

    `difference` is the mean of `Step.difference`, `same_top` the share of places with the same
    likeliest token.
    """

    positions: int
    difference: float
    same_top: float


def common(before: Sequence[Step], now: Sequence[Step]) -> int:
    """How many tokens two answers share from their beginning."""
    shared = 0
    for one, other in zip(before, now, strict=False):
        if one.token != other.token:
            break
        shared += 1
    return shared


def measure(pairs: Iterable[Pair]) -> Measured | None:
    """How alike the answers are that came; None where there is nothing to compare.

    Where one ends and the other goes on, that is one more place with another likeliest token.
    """
    differences: list[float] = []
    tops: list[bool] = []
    for pair in pairs:
        before, now = pair.reference.steps, pair.seen.steps
        for one, other in zip(before, now, strict=False):
            differences.append(one.difference(other))
            tops.append(one.likeliest == other.likeliest)
        if len(before) != len(now):
            tops.append(False)
    if not differences:
        return None
    return Measured(len(differences), fmean(differences), fmean(tops))
