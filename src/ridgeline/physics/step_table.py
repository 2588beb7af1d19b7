"""Step times as they were measured: a curve over the rows of a step, and slopes beside it.

Where no roofline tells how long a step takes (a processor with caches, an engine of one's own), it
is measured, and this is its form. A row is a token that passes through the weights, of a decoding
sequence or of a prompt:

    curve(rows) + sequence x decodes + cached x cached tokens
                + attended x (prompt token, token it attends to) pairs

Between measured points the curve is straight, and beyond the last it goes on as it came there. A
run of decodes has the same rows in each step, so its sum has a closed form, as with
`straight_steps`, in whole femtoseconds.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ridgeline.physics.straight_steps import FS


@dataclass(frozen=True, slots=True)
class StepTable:
    """The curve's points (`rows` ascending from 1, their `seconds`) and the slopes, in seconds."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    sequence_s: float
    cached_s_per_token: float
    attended_s_per_pair: float

    def __post_init__(self) -> None:
        if len(self.rows) < 2 or len(self.rows) != len(self.seconds) or self.rows[0] != 1:
            raise ValueError("a curve has two points or more, the first of one row")
        if any(later <= one for one, later in zip(self.rows, self.rows[1:], strict=False)):
            raise ValueError("rows ascend")
        if any(later < one for one, later in zip(self.seconds, self.seconds[1:], strict=False)):
            raise ValueError("more rows take no less time")
        slopes = (self.sequence_s, self.cached_s_per_token, self.attended_s_per_pair)
        if self.seconds[0] <= 0 or min(slopes) < 0:
            raise ValueError("a step takes time, and nothing takes less than none")

    def step_s(
        self,
        decode_tokens: float | None = None,
        cached_tokens: float | None = None,
        prompt_tokens: float | None = None,
        attended_tokens: float | None = None,
        /,
    ) -> float:
        """One step; `physics.step_time.StepTime` says what is what."""
        decodes, prompts = decode_tokens or 0.0, prompt_tokens or 0.0
        return (
            interpolated(self.rows, self.seconds, decodes + prompts)
            + self.sequence_s * decodes
            + self.cached_s_per_token * (cached_tokens or 0.0)
            + self.attended_s_per_pair * prompts * (attended_tokens or 0.0)
        )

    @property
    def in_fs(self) -> "TableSteps":
        """The same in whole femtoseconds."""
        slopes = (self.sequence_s, self.cached_s_per_token, self.attended_s_per_pair)
        return TableSteps(self.rows, tuple(map(_fs, self.seconds)), *map(_fs, slopes))


def interpolated(rows: Sequence[int], seconds: Sequence[float], at: float) -> float:
    """The curve's value."""
    index = _segment(rows, at)
    slope = (seconds[index + 1] - seconds[index]) / (rows[index + 1] - rows[index])
    return seconds[index] + slope * (at - rows[index])


@dataclass(frozen=True)
class TableSteps:
    """A `StepTable` for those who ask millions of times; asked as `StraightSteps` is."""

    rows: tuple[int, ...]
    curve_fs: tuple[int, ...]
    sequence_fs: int
    cached_fs: int
    attended_fs: int

    def step_fs(self, decodes: int, cached: int, prompts: int, pairs: int) -> int:
        """One step: `decodes` sequences with `cached` tokens in all, and `prompts` tokens.

        `pairs` is the sum over prompt tokens of the tokens that each attends to.
        """
        return (
            self._curve_fs(decodes + prompts)
            + self.sequence_fs * decodes
            + self.cached_fs * cached
            + self.attended_fs * pairs
        )

    def slower(self, factor: float) -> "TableSteps":
        """All of it so many times as long."""
        return replace(
            self,
            curve_fs=tuple(round(one * factor) for one in self.curve_fs),
            sequence_fs=round(self.sequence_fs * factor),
            cached_fs=round(self.cached_fs * factor),
            attended_fs=round(self.attended_fs * factor),
        )

    def _curve_fs(self, rows: int) -> int:
        known = self._known.get(rows)
        if known is None:
            index = _segment(self.rows, rows)
            low, high = self.rows[index], self.rows[index + 1]
            rise = self.curve_fs[index + 1] - self.curve_fs[index]
            known = self._known[rows] = self.curve_fs[index] + rise * (rows - low) // (high - low)
        return known

    @cached_property
    def _known(self) -> dict[int, int]:
        return {}


def _segment(rows: Sequence[int], at: float) -> int:
    """Between which points it is; beyond the ends, the nearest two."""
    return min(max(bisect_right(rows, at) - 1, 0), len(rows) - 2)


def _fs(seconds: float) -> int:
    return round(seconds * FS)
