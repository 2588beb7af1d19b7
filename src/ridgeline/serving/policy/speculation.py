"""Whether to run guessed tokens in the next step, and how many: where measured steps say so.

A guess is checked in a step that runs anyway. It makes that step wider, and saves one where it
holds. `serving.engine.speculator` asks once for each step of plain decodes:

    tokens   = running + the chances of the guesses in the step, each with all before it
    seconds  = what steps of (running + guesses) rows took lately (`step_times`)

The rule: of all guesses on offer take the likeliest, as many as give the most tokens a second; take
none where that is not `_START` of the plain step's rate, or `_STAY` while guesses are being run
already: noise must not switch it back and forth. A step whose time is the reading of weights takes
guesses gladly; one whose time is arithmetic, under load, takes none. Nobody sets a batch size.

Both sides of the rule keep being measured while nothing is run:

- Chances need no trial. A guess is judged by the tokens that came, run or not, so a refused one
  costs a look into an index. After each refusal drafts are asked more seldom, but every 16th step;
  and where nobody had a guess, the more seldom the more there are to be asked.
- Times are forgotten when they are old, and a width that is not known, up to twice the widest that
  is, is taken for as good as those that are: it is tried in three steps, and is known. That is the
  probe, and all that it costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.serving.policy.step_times import StepTimes

_START = 1.20
_STAY = 1.05
_LONGEST_REST = 15
_SIZES = 8  # numbers of guesses that are weighed against each other

_MEMORY = 0.9  # of what came before, a sequence keeps this at each guess judged
_LONG_MEMORY = 0.99  # the same for all sequences together
_PRIOR = 0.5
_PRIOR_TRIED = 4.0


@dataclass(frozen=True, slots=True)
class Offer:
    """Guesses in a row for one sequence: so many, each of which holds with `chance`."""

    guesses: int
    chance: float


class Fared:
    """How guesses have fared lately: the chance that the next holds where all before it did."""

    __slots__ = ("_held", "_memory", "_tried")

    def __init__(self, memory: float = _MEMORY) -> None:
        self._memory = memory
        self._held = 0.0
        self._tried = 0.0

    def judge(self, held: int, tried: int) -> None:
        """Of guesses in a row the first `held` came true, and so many could be judged.

        One that did not hold ends the row: `tried` is `held` or one more.
        """
        self._held = self._memory * self._held + held
        self._tried = self._memory * self._tried + tried

    def chance(self, prior: float) -> float:
        """The chance, near `prior` while there is little to judge by; above 0, below 1."""
        return (self._held + _PRIOR_TRIED * prior) / (self._tried + _PRIOR_TRIED)


class Speculation:
    """The switch of one engine."""

    def __init__(self) -> None:
        self._times = StepTimes()
        self._all = Fared(_LONG_MEMORY)
        self._on = False
        self._rest = 0  # steps without a question after a refusal, or after an empty answer
        self._rested = 0

    def judge(self, fared: Fared, held: int, tried: int) -> None:
        """A sequence's guesses were judged by the tokens that came."""
        fared.judge(held, tried)
        self._all.judge(held, tried)

    def chance(self, fared: Fared) -> float:
        """The chance that a sequence's next guess holds; a new sequence's is like all others'."""
        return fared.chance(self._all.chance(_PRIOR))

    def stepped(self, rows: int, took_s: float) -> None:
        """A step of nothing but decodes, with or without guesses, took so long as a whole."""
        self._times.saw(rows, took_s)

    def due(self) -> bool:
        """Whether drafts are to be asked in this step; call it once for each."""
        self._rested += 1
        return self._rested > self._rest

    def choose(self, running: int, offers: Sequence[Offer]) -> list[int]:
        """How many guesses of each offer to run beside the `running` sequences' own rows."""
        chosen = [0] * len(offers)
        ranked = _ranked(offers)
        plain_s = self._times.of(running)
        self._rested = 0
        if not ranked or plain_s is None:
            self._rest = min(running - 1, _LONGEST_REST)
            return chosen
        most = max(self._times.reach - running, 0)
        gain, count = self._best(running, plain_s, [chance for chance, _ in ranked[:most]])
        self._on = gain >= (_STAY if self._on else _START)
        self._rest = 0 if self._on else min(2 * self._rest + 1, _LONGEST_REST)
        for _, index in ranked[: count if self._on else 0]:
            chosen[index] += 1
        return chosen

    def _best(self, running: int, plain_s: float, chances: Sequence[float]) -> tuple[float, int]:
        """The best rate of tokens, over the plain step's, and with how many of the guesses."""
        best, tokens = (1.0, 0), float(running)
        stride = max(1, len(chances) // _SIZES)
        for count, chance in enumerate(chances, 1):
            tokens += chance
            if count % stride == 0 or count == len(chances):
                step_s = self._times.of(running + count) or plain_s
                best = max(best, (tokens / running * plain_s / step_s, count))
        return best


def _ranked(offers: Sequence[Offer]) -> list[tuple[float, int]]:
    """Each guess's chance to be kept and its offer's index, likeliest first.

    A guess is kept where all before it are, so a row's chances fall, and what is taken from the
    front of this list is the front of each row.
    """
    return sorted(
        (
            (offer.chance**depth, index)
            for index, offer in enumerate(offers)
            for depth in range(1, offer.guesses + 1)
        ),
        reverse=True,
    )
