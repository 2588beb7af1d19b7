"""How long a step of so many rows takes, by what recent steps took.

Called by `speculation`. The law of this file: it believes no single measurement, and none that is
old. A width counts as known from its third measurement on, as the median of its last nine: other
programs, a first call of a kernel, a page that is not there yet make single steps slow. A width
that was not measured for `_FORGOTTEN` steps is unknown again: contexts grow, machines get busy.
"""

from bisect import bisect_left, insort
from collections import OrderedDict, deque

_RECENT = 9
_BELIEVED = 3
_FORGOTTEN = 1_000


class _Width:
    """The recent times of one width, their median, and when the last came."""

    __slots__ = ("last", "median_s", "recent_s")

    def __init__(self) -> None:
        self.recent_s: deque[float] = deque(maxlen=_RECENT)
        self.median_s = 0.0
        self.last = 0


class StepTimes:
    """Seconds by rows. Costs O(1) a measurement, O(log of the widths) a question."""

    def __init__(self) -> None:
        self._widths: OrderedDict[int, _Width] = OrderedDict()  # longest not measured first
        self._known: list[int] = []  # ascending
        self._steps = 0

    def saw(self, rows: int, took_s: float) -> None:
        """A step of `rows` rows took so long."""
        self._steps += 1
        rows = bucket(rows)
        width = self._widths.setdefault(rows, _Width())
        self._widths.move_to_end(rows)
        width.last = self._steps
        width.recent_s.append(took_s)
        width.median_s = sorted(width.recent_s)[len(width.recent_s) // 2]
        if len(width.recent_s) >= _BELIEVED and not self._knows(rows):
            insort(self._known, rows)
        self._forget()

    def of(self, rows: int) -> float | None:
        """The time to expect, in seconds; None where nothing is known.

        Between two known widths on the line through them. Beyond the widest on the line through it
        and the narrowest; where only one is known, as long as that one: then a wider step will be
        tried, and known.
        """
        known, rows = self._known, bucket(rows)
        if not known:
            return None
        at = min(bisect_left(known, rows), len(known) - 1)
        if known[at] == rows or len(known) == 1 or rows < known[0]:
            return self._widths[known[at]].median_s
        wide = known[at]
        narrow = known[at - 1] if rows < wide else known[0]
        low, high = self._widths[narrow].median_s, self._widths[wide].median_s
        share = (rows - narrow) / (wide - narrow)
        return max(low, low + share * (high - low))

    @property
    def reach(self) -> int:
        """The widest step to try next: twice the widest known, so that no trial costs much."""
        return 2 * self._known[-1] if self._known else 0

    def _forget(self) -> None:
        while next(iter(self._widths.values())).last < self._steps - _FORGOTTEN:
            rows, _ = self._widths.popitem(last=False)
            if self._knows(rows):
                self._known.remove(rows)

    def _knows(self, rows: int) -> bool:
        at = bisect_left(self._known, rows)
        return at < len(self._known) and self._known[at] == rows


def bucket(rows: int) -> int:
    """Widths that count as one: up to 8 each its own, then four to each doubling, rounded up."""
    grain = 1 << max((rows - 1).bit_length() - 3, 0)
    return -(-rows // grain) * grain
