"""Rows of logits become tokens: one a sequence, or several where tokens were guessed.

The sampler draws at each row as it would have done step by step, with the chance, the penalties and
the grammar of that position. A row counts only where all rows before it gave what was guessed:

    rows       | behind c | behind guess d | behind guess e |
    drawn            d             x                ✗           d was guessed, e was not what came

So guesses change how many steps an answer takes, and no token of it (decisions/0014). Called by
`loop` once a step.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.engine.sampler import Chosen, Sampler
from ridgeline.serving.engine.sequence import Continuation


@dataclass(slots=True)
class Line:
    """A sequence's rows of logits, from `row` on one more than it has guesses; what they gave."""

    sequence: Continuation
    row: int
    guesses: Sequence[int] = ()
    chosen: list[Chosen] = field(default_factory=list)
    finish: str | None = None

    @property
    def held(self) -> int:
        """Guesses that came true: each token but the last was one."""
        return len(self.chosen) - 1

    @property
    def goes_on(self) -> bool:
        """Whether the next row stands behind what was really said."""
        at = self.held
        there = self.finish is None and at < len(self.guesses)
        return there and self.chosen[at].token == self.guesses[at]

    def say(self, chosen: Chosen, eos_ids: Collection[int]) -> None:
        """One more token of the sequence, perhaps its last."""
        self.chosen.append(chosen)
        if chosen.error:
            self.finish = "error"
            return
        self.sequence.tokens.append(chosen.token)
        self.finish = self.sequence.finish(eos_ids)


def draw_lines(
    sampler: Sampler,
    lines: Sequence[Line],
    logits_RV: NDArray[np.float32],
    eos_ids: Collection[int],
) -> None:
    """Draw row after row of each line, as long as the next one counts."""
    going = lines
    while going:
        rows = [line.row + len(line.chosen) for line in going]
        wanted_RV = logits_RV if rows == list(range(len(logits_RV))) else logits_RV[rows]
        chosen = sampler.sample(wanted_RV, [line.sequence.state for line in going])
        for line, one in zip(going, chosen, strict=True):
            line.say(one, eos_ids)
        going = [line for line in going if line.goes_on]
