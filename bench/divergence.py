"""How far one model's next-token distributions lie from another's.

Law of this file: arithmetic on logits alone, in float64, position by position; the reference is
always the first argument: KL(reference || other), in nats. `bench/quality.py` calls it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Position by position [P]: KL in nats, and whether the likeliest token is the same.

    `lost`: how much likelier the reference finds the token that follows, in nats; nan where none
    does.
    """

    kl: Doubles
    same_top: npt.NDArray[np.bool_]
    lost: Doubles

    def __len__(self) -> int:
        return len(self.kl)


def log_softmax(logits: Floats) -> Doubles:
    """Log-probabilities of rows of logits [P, V], float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergence(reference: Floats, other: Floats, following: Iterable[int]) -> Divergence:
    """Compares logits [P, V] at the same positions; `following` are the tokens that came."""
    ids = np.fromiter(following, np.int64)
    ours, theirs = log_softmax(reference), log_softmax(other)
    kl = (np.exp(ours) * (ours - theirs)).sum(axis=1)
    lost = np.full(len(kl), np.nan)
    at = np.arange(len(ids))
    lost[: len(ids)] = ours[at, ids] - theirs[at, ids]
    same_top = reference.argmax(axis=1) == other.argmax(axis=1)
    return Divergence(np.maximum(kl, 0.0), same_top, lost)


def joined(parts: Iterable[Divergence]) -> Divergence:
    """All positions of several stretches."""
    held = list(parts)
    return Divergence(
        np.concatenate([part.kl for part in held]),
        np.concatenate([part.same_top for part in held]),
        np.concatenate([part.lost for part in held]),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """What a reader is told of many positions; `perplexity_ratio` is the other's over ours."""

    positions: int
    kl_mean: float
    kl_p99: float
    kl_max: float
    top1_agreement: float
    perplexity_ratio: float


def summary(found: Divergence) -> Summary:
    """The numbers of at least one position."""
    return Summary(
        positions=len(found),
        kl_mean=float(found.kl.mean()),
        kl_p99=float(np.quantile(found.kl, 0.99, method="higher")),
        kl_max=float(found.kl.max()),
        top1_agreement=float(found.same_top.mean()),
        perplexity_ratio=float(np.exp(np.nanmean(found.lost))),
    )
