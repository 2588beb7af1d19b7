"""Guesses for one engine's steps: drafts propose, the policy chooses, what came is the judge.

`loop` asks before a step of plain decodes and tells afterwards how long the step took. Nothing here
can change an answer: a guess that does not hold is thrown away (decisions/0014).
"""

from collections.abc import Callable, Sequence

from ridgeline.serving.engine.draft import Draft, Guesser, NgramDraft
from ridgeline.serving.engine.sequence import Continuation
from ridgeline.serving.policy.speculation import Offer, Speculation

DRAFTS: dict[str, Callable[[], Draft]] = {"ngram": NgramDraft}
"""By their names in `EngineConfig.speculation`, which is "off" where there is none."""


class Speculator:
    """The guesses of all sequences. `most` guesses in a row for one of them."""

    def __init__(self, make_draft: Callable[[], Draft], most: int) -> None:
        self._make_draft = make_draft
        self._most = most
        self._policy = Speculation()

    def guesses(self, decodes: Sequence[Continuation]) -> dict[str, list[int]]:
        """Guesses worth running in a step in which just these sequences decode."""
        if not self._policy.due():
            return {}
        proposals = [self._propose(sequence) for sequence in decodes]
        offers = [Offer(len(guesses), chance) for guesses, chance in proposals]
        counts = self._policy.choose(len(decodes), offers)
        return {
            sequence.id: guesses[:count]
            for sequence, (guesses, _), count in zip(decodes, proposals, counts, strict=True)
            if count
        }

    def stepped(self, rows: int, took_s: float) -> None:
        """A step of nothing but decodes, guesses included, took so long."""
        self._policy.stepped(rows, took_s)

    def _propose(self, sequence: Continuation) -> tuple[list[int], float]:
        guesser = sequence.guesser
        if guesser is None:
            guesser = sequence.guesser = Guesser(self._make_draft())
        held, tried = guesser.judged(sequence.tokens)
        if tried:
            self._policy.judge(guesser.fared, held, tried)
        guesses = guesser.propose(sequence.tokens, min(self._most, sequence.room))
        return guesses, self._policy.chance(guesser.fared)
