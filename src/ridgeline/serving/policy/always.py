"""The rule of engines that guess for everybody: so many tokens each, up to a batch, or always.

It stands where `speculation.Speculation` does, so that what a set batch does can be compared with
what measured steps do. It asks in each step, and learns nothing.
"""

from collections.abc import Sequence

from ridgeline.serving.policy.speculation import Fared, Offer

_PRIOR = 0.5


class Always:
    """All guesses that are offered, unless more than `off_above` sequences run (0: no bound)."""

    def __init__(self, off_above: int = 0) -> None:
        if off_above < 0:
            raise ValueError(f"off_above is a number of sequences, not {off_above}")
        self._off_above = off_above

    def is_off(self, running: int) -> bool:
        """Whether so many sequences are too many to guess for."""
        return 0 < self._off_above < running

    def judge(self, fared: Fared, held: int, tried: int) -> None:
        """A sequence's guesses were judged by the tokens that came."""
        fared.judge(held, tried)

    def chance(self, fared: Fared) -> float:
        """The chance that a sequence's next guess holds."""
        return fared.chance(_PRIOR)

    def stepped(self, rows: int, took_s: float) -> None:
        """A step took so long: nothing depends on it."""

    def due(self) -> bool:
        """Whether drafts are to be asked in this step."""
        return True

    def choose(self, running: int, offers: Sequence[Offer]) -> list[int]:
        """How many guesses of each offer to run: all or none."""
        return [0 if self.is_off(running) else offer.guesses for offer in offers]
