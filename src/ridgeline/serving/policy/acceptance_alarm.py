"""Whether guesses hold more seldom than they did: nothing else tells it, since no answer changes.

A draft that has gone bad costs speed and makes no error, so that only the counts of guesses show
it. Each guess that was tried is evidence for "as expected" or for "lower by `drop`":

    score = max(0, score + log of (its chance if lower / its chance if as expected))

and the score passes a bound only where a streak speaks for lower. With a bound of log(N) a healthy
draft alarms once in N guesses at most. Source: Page 1954 (CUSUM); Lorden 1971 for the bound.
"""

from dataclasses import dataclass
from math import log


@dataclass(frozen=True, slots=True)
class Expected:
    """The share of tried guesses that hold in health, and how much less is a fault.

    Raises ValueError for shares that no guess can have.
    """

    share: float
    drop: float = 0.1
    false_once_in: float = 1e6

    def __post_init__(self) -> None:
        if not 0 < self.drop < self.share < 1:
            raise ValueError(f"0 < drop {self.drop} < share {self.share} < 1 does not hold")
        if self.false_once_in <= 1:
            raise ValueError(f"a false alarm in {self.false_once_in:g} guesses is no bound")


class AcceptanceAlarm:
    """Told of guesses that were judged. It alarms once, and again only after health in between."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        lower = expected.share - expected.drop
        self._if_held = log(lower / expected.share)
        self._if_not = log((1 - lower) / (1 - expected.share))
        self._bound = log(expected.false_once_in)
        self._begin()

    def _begin(self) -> None:
        self._alarmed = False
        self._score = 0.0
        self._held = self._tried = 0  # since the score was 0

    def saw(self, held: int, tried: int) -> str:
        """So many guesses were tried, of which the first `held` came true; why, or nothing."""
        score = self._score + held * self._if_held + (tried - held) * self._if_not
        if score <= 0:
            self._begin()
            return ""
        self._score = min(score, self._bound)
        self._held += held
        self._tried += tried
        if score <= self._bound or self._alarmed:
            return ""
        self._alarmed = True
        return (
            f"{self._held / self._tried:.0%} of the last {self._tried} guesses held, "
            f"{self._expected.share:.0%} are expected"
        )
