"""The longest wait between two tokens of each answer: what a stream feels of others' prompts.

Times are in femtoseconds, as the engine's steps are. Costs O(1) a sequence a step, so it is asked
for (`Serving.gaps`) and not always there.
"""

from collections.abc import Iterable


class Gaps:
    """Told of each run of steps; `pop` gives the longest gap of one that has ended."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # when the last token came
        self._longest: dict[str, int] = {}

    def saw(
        self, ids: Iterable[str], began_fs: int, took_fs: int, first_fs: int, last_fs: int
    ) -> None:
        """Each of `ids` got a token in each step of a run.

        The run took `took_fs`, its first step `first_fs` and its last, the longest, `last_fs`.
        """
        last, longest = self._last, self._longest
        for one in ids:
            before = last.get(one)
            if before is None:
                longest[one] = 0 if took_fs == first_fs else last_fs
            else:
                gap = max(began_fs + first_fs - before, last_fs if took_fs != first_fs else 0)
                longest[one] = max(longest[one], gap)
            last[one] = began_fs + took_fs

    def pop(self, one: str) -> int:
        """The longest gap of it, 0 where it got one token at most; it is forgotten."""
        self._last.pop(one, None)
        return self._longest.pop(one, 0)
