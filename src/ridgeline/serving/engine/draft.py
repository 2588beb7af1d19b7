"""What may come next, guessed without the model: one draft for each sequence.

`speculator` asks; whether the guesses are run, `policy.speculation` decides. A guess costs time
where it is wrong and never changes what comes out (`policy.verify`), so a draft may be anything.
"""

from collections.abc import Sequence
from typing import Protocol

from ridgeline.serving.policy.speculation import Fared

LONGEST = 4
SHORTEST = 2
WINDOW = 8_192
"""Tokens that an index holds at the most; some 300 bytes each."""


class Draft(Protocol):
    """One sequence's source of guesses. A guess is certain of itself: it brings no chances."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow `tokens`.

        `tokens` are the sequence's own, prompt and output, and only ever grow.
        """


class NgramDraft:
    """Prompt lookup: what followed when the last few tokens occurred before.

        tokens    [ ... a b c d x y ... a b c d ]
                              └─┴── proposed after the second "a b c d"

    Of all n-grams at the end that occurred before, the longest counts (`LONGEST` tokens down to
    `SHORTEST`), and its latest occurrence. Each token is indexed once, when the next is known; a
    text of more than `WINDOW` tokens forgets its older half now and then.

    Source: Saxena 2023, prompt lookup decoding.
    """

    __slots__ = ("_end", "_first", "_followed_at")

    def __init__(self) -> None:
        self._followed_at: dict[tuple[int, ...], int] = {}
        self._first = 0  # tokens from here on are in the index
        self._end = 0  # up to here

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """See `Draft`."""
        self._catch_up(tokens)
        size = len(tokens)
        for length in range(min(LONGEST, size - self._first), SHORTEST - 1, -1):
            at = self._followed_at.get(tuple(tokens[size - length :]))
            if at is not None:
                return _onwards(tokens, at, count)
        return []

    def _catch_up(self, tokens: Sequence[int]) -> None:
        """Index what has a token behind it now."""
        last = len(tokens) - 1
        if last - self._first > WINDOW:
            self._first = self._end = last - WINDOW // 2
            self._followed_at.clear()
        for end in range(self._end + 1, last + 1):
            for length in range(SHORTEST, min(LONGEST, end - self._first) + 1):
                self._followed_at[tuple(tokens[end - length : end])] = end
        self._end = max(self._end, last)


class Guesser:
    """One sequence's draft, and what it proposed last: so that it can be judged."""

    __slots__ = ("_at", "_draft", "_proposed", "fared")

    def __init__(self, draft: Draft) -> None:
        self.fared = Fared()
        self._draft = draft
        self._at = 0
        self._proposed: list[int] = []

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """What may follow."""
        self._at = len(tokens)
        self._proposed = self._draft.propose(tokens, count) if count > 0 else []
        return self._proposed

    def judged(self, tokens: Sequence[int]) -> tuple[int, int]:
        """How many of the last guesses came true, and how many of them can be judged by now."""
        came = tokens[self._at : self._at + len(self._proposed)]
        held = _agreeing(self._proposed, came)
        return held, min(held + 1, len(came))


def _onwards(tokens: Sequence[int], at: int, count: int) -> list[int]:
    """`count` tokens from `at` on; where the known ones end, the text is taken to go round."""
    guesses = list(tokens[at : at + count])
    period = len(tokens) - at
    while len(guesses) < count:
        guesses.append(guesses[-period])
    return guesses


def _agreeing(guesses: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens agree before the first that does not."""
    for at, (guess, token) in enumerate(zip(guesses, tokens, strict=False)):
        if guess != token:
            return at
    return min(len(guesses), len(tokens))
