"""Speculation in virtual time: the live rule decides, and chance by name says which guesses hold.

As `serving.engine.speculator` does, it asks for guesses before a step of plain decodes, lets the
rule choose among them, and judges them by the tokens that came. Whether a guess holds is drawn for
(request, position of the token): so it is the same guess that holds, whoever asks for it and when.
A draft always has a guess; one that seldom has any is one whose guesses seldom hold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ridgeline.serving.policy.acceptance_alarm import AcceptanceAlarm, Expected
from ridgeline.serving.policy.always import Always
from ridgeline.serving.policy.batch import Batcher, Step
from ridgeline.serving.policy.speculation import Fared, Offer, Speculation
from ridgeline.serving.simulate.chances import Chances

_DRAWN = "guess"
_PARTS = 10**9  # of one: shares of a step are whole parts


@dataclass(frozen=True, slots=True)
class Guessing:
    """How an engine guesses.

    `acceptance` is the chance that a guess holds where all before it did, of all requests, or by
    the name of an adapter or a tenant and "" for all others. One of the `drafts` guesses in a row,
    for all sequences together, takes `draft_share` of a plain step; they take it whether they are
    run or not. By the rule "measured" steps are guessed in where the engine's own switch finds that
    it pays, by "always" in all of up to `off_above` sequences (0: in all). What is `expected` of
    guesses is watched.
    """

    acceptance: float | Mapping[str, float]
    drafts: int = 4
    draft_share: float = 0.0
    rule: Literal["measured", "always"] = "measured"
    off_above: int = 0
    expected: Expected | None = None

    def __post_init__(self) -> None:
        shares = self.acceptance
        every = [*shares.values()] if isinstance(shares, Mapping) else [shares]
        if not all(0 <= share <= 1 for share in every):
            raise ValueError(f"chances are 0 to 1: {every}")
        if self.drafts < 1 or self.draft_share < 0:
            raise ValueError(f"{self.drafts} drafts at {self.draft_share} of a step each")
        if self.off_above and self.rule != "always":
            raise ValueError('off_above is of the rule "always"; "measured" finds it itself')

    def chance(self, *names: str) -> float:
        """That a guess holds in a request that is of these names, the first that is known.

        Raises KeyError where none is, and there is none for all others.
        """
        if not isinstance(self.acceptance, Mapping):
            return self.acceptance
        known = (name for name in names if name and name in self.acceptance)
        return self.acceptance[next(known, "")]


@dataclass(slots=True)
class _Row:
    """One request's guesses: those that were proposed last, at so many tokens."""

    chance: float
    fared: Fared = field(default_factory=Fared)
    at: int = 0
    proposed: int = 0
    holding: int = 0  # of the proposed, before the first that does not hold


class Speculator:
    """The guesses of all requests of one engine. `alarm` is told why, when there is a reason."""

    def __init__(
        self,
        guessing: Guessing,
        chances: Chances,
        batcher: Batcher,
        alarm: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._guessing = guessing
        self._chances = chances
        self._batcher = batcher
        self._alarm = alarm
        self._watch = AcceptanceAlarm(guessing.expected) if guessing.expected else None
        self._rule: Speculation | Always = (
            Always(guessing.off_above) if guessing.rule == "always" else Speculation()
        )
        self._rows: dict[str, _Row] = {}
        self._draft_parts = guessing.drafts * round(guessing.draft_share * _PARTS)
        self.tried = self.held = 0

    def is_off(self, running: int) -> bool:
        """Whether nothing is asked while so many run: those steps may be jumped over."""
        return isinstance(self._rule, Always) and self._rule.is_off(running)

    def enters(self, work_id: str, *names: str) -> None:
        """A request has come, of an adapter and a tenant."""
        self._rows[work_id] = _Row(self._guessing.chance(*names))

    def leaves(self, work_id: str) -> None:
        """It is gone."""
        self._rows.pop(work_id, None)

    def guessed(self, step: Step, plain_fs: int) -> tuple[Step, int]:
        """The step with guesses in it, and how long the drafts took."""
        if not step.decodes or self.is_off(len(step.chunks)) or not self._rule.due():
            return step, 0
        offers = [self._propose(chunk.id, chunk.start + 1) for chunk in step.chunks]
        counts = self._rule.choose(len(step.chunks), offers)
        wanted = {
            chunk.id: count for chunk, count in zip(step.chunks, counts, strict=True) if count
        }
        drafts_fs = plain_fs * self._draft_parts // _PARTS
        return (self._batcher.guess(step, wanted) if wanted else step), drafts_fs

    def held_in(self, step: Step) -> dict[str, int]:
        """How many of each chunk's guesses came true."""
        found = {}
        for chunk in step.chunks:
            if chunk.guesses and (row := self._rows.get(chunk.id)) is not None:
                found[chunk.id] = held = min(row.holding, chunk.guesses)
                self.tried += chunk.guesses
                self.held += held
        return found

    def stepped(self, rows: int, took_s: float) -> None:
        """A step of nothing but decodes took so long as a whole."""
        self._rule.stepped(rows, took_s)

    def _propose(self, work_id: str, tokens: int) -> Offer:
        row = self._rows[work_id]
        self._judge(row, tokens)
        row.at = tokens
        row.proposed = max(0, min(self._guessing.drafts, self._batcher.left(work_id) - 1))
        row.holding = self._holding(work_id, row)
        return Offer(row.proposed, self._rule.chance(row.fared))

    def _judge(self, row: _Row, tokens: int) -> None:
        """By the tokens that have come since."""
        came = min(tokens - row.at, row.proposed)
        held = min(row.holding, came)
        tried = min(held + 1, came)
        if not tried:
            return
        self._rule.judge(row.fared, held, tried)
        if self._watch is not None and (why := self._watch.saw(held, tried)):
            self._alarm(why)

    def _holding(self, work_id: str, row: _Row) -> int:
        for count in range(row.proposed):
            if self._chances.share(_DRAWN, work_id, row.at + count) >= row.chance:
                return count
        return row.proposed
