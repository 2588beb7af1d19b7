"""Rows of logits become tokens: one a sequence, or several where tokens were guessed.

The sampler draws at each row as it would have done step by step, with the chance, the penalties and
the grammar of that position. A row counts only where all rows before it gave what was guessed:

    rows       | behind c | behind guess d | behind guess e |
    drawn            d             x                ✗           d was guessed, e was not what came

So guesses change how many steps an answer takes, and no token of it (decisions/0014). Called by
`loop` once a step.
"""

from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.engine.messages import Logprob
from ridgeline.serving.engine.sampler import Chosen, Sampler
from ridgeline.serving.engine.sequence import Continuation


class Line(msgspec.Struct):
    """A sequence's rows of logits, from `row` on one more than it has guesses; what they gave.

    With `error` the last row that was drawn gave no token.
    """

    sequence: Continuation
    row: int
    guesses: Sequence[int] = ()
    said: list[int] = []
    logprobs: list[Logprob] = []
    finish: str | None = None
    error: str = ""

    @property
    def held(self) -> int:
        """Guesses that came true: each row but the last one drawn gave one."""
        return len(self.said) if self.error else len(self.said) - 1

    @property
    def goes_on(self) -> bool:
        """Whether the next row stands behind what was really said."""
        at = self.held
        there = self.finish is None and at < len(self.guesses)
        return there and self.said[at] == self.guesses[at]

    def say(self, chosen: Chosen, eos_ids: Collection[int]) -> None:
        """One more token of the sequence, perhaps its last."""
        if chosen.error:
            self.finish, self.error = "error", chosen.error
            return
        self.said.append(chosen.token)
        if chosen.logprob is not None:
            self.logprobs.append(chosen.logprob)
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
        rows = [line.row + len(line.said) for line in going]
        wanted_RV = logits_RV if rows == list(range(len(logits_RV))) else logits_RV[rows]
        chosen = sampler.sample(wanted_RV, [line.sequence.state for line in going])
        for line, one in zip(going, chosen, strict=True):
            line.say(one, eos_ids)
        going = [line for line in going if line.guesses and line.goes_on]
