"""Virtual time: what happens when, and in which order at one instant. The simulators' clock.

The order is a specification: (time, rank, arrival). Time is whole nanoseconds. A rank says which
kind of thing goes first at one instant; whoever simulates names his ranks and their order. Things
of one rank at one instant happen in the order in which they were put down. So two runs of the same
thing are the same run, and nothing depends on the order of a dict or on rounding.
"""

import heapq
from collections.abc import Callable
from typing import Any

Act = Callable[[Any], None]
NS = 1_000_000_000


class Timeline:
    """The clock, and what is still to come. `now_ns` and `rank` are of what happens now."""

    __slots__ = ("_coming", "_number", "now_ns", "rank")

    def __init__(self) -> None:
        self._coming: list[tuple[int, int, int, Act, Any]] = []
        self._number = 0
        self.now_ns = 0
        self.rank = -1

    def __len__(self) -> int:
        """How much is still to come."""
        return len(self._coming)

    @property
    def next_ns(self) -> int | None:
        """When the next thing happens; None where nothing is to come."""
        return self._coming[0][0] if self._coming else None

    def at(self, at_ns: int, rank: int, act: Act, what: Any = None) -> None:
        """`act(what)` will be called then.

        Raises ValueError where that is over: time goes forward only, and of one instant the ranks.
        """
        if at_ns < self.now_ns or (at_ns == self.now_ns and rank < self.rank):
            now = f"{self.now_ns} ns (rank {self.rank})"
            raise ValueError(f"{at_ns} ns (rank {rank}) is over: it is {now}")
        heapq.heappush(self._coming, (at_ns, rank, self._number, act, what))
        self._number += 1

    def run(self, until_ns: int | None = None) -> None:
        """Let happen what comes, up to `until_ns` inclusive, or all of it."""
        coming = self._coming
        while coming and (until_ns is None or coming[0][0] <= until_ns):
            self.now_ns, self.rank, _, act, what = heapq.heappop(coming)
            act(what)
        if until_ns is not None and until_ns > self.now_ns:
            self.now_ns, self.rank = until_ns, -1

    def stop(self) -> None:
        """Nothing more comes, nor what is put down before this act is over."""
        self._coming.clear()
        self._coming = []  # `run` goes on with the list that is empty now
