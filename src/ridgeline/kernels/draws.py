"""The seam between the sampler and whatever draws: a step's rows of logits, tokens.

The law of this file: it names what crosses the seam and computes nothing. `native_draws` (C++) and
`serving.engine.draw` (numpy, the oracle) implement `Draws`; tests hold them equal.

Shapes: R rows of logits, A adjusted ones, V words.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ridgeline.kernels.decoder import Floats


class Row(NamedTuple):
    """What one draw goes by.

    From logits `row`, or, where `adjusted` is not -1, from that adjusted row. `chance` in [0, 1)
    decides. `temperature` 0 takes the largest; `alternatives` -1 means no log-probabilities.
    """

    row: int
    adjusted: int = -1
    chance: float = 0.0
    temperature: float = 0.0
    min_p: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    alternatives: int = -1


class Drawn(NamedTuple):
    """A token, or -1 where `peak`, the largest of what was to be drawn from, is not finite.

    Of the logits before they were adjusted, and only if log-probabilities were asked for:
    `normaliser`, the logarithm of the sum of their exponentials, and `likeliest`, the ids of the
    `alternatives` largest, largest first, of equals the lower id first.
    """

    token: int
    peak: float
    normaliser: float = 0.0
    likeliest: Sequence[int] = ()


class Draws(Protocol):
    """Draws tokens from rows of one vocabulary. Not safe for two threads at once."""

    def draw(self, logits_RV: Floats, adjusted_AV: Floats, rows: Sequence[Row]) -> list[Drawn]:
        """One token for each of `rows`, in order, each by itself."""
