"""What the log of a program that does not speak our events tells: stages, and why it died.

`foreign` reads it while the program starts, and again when it has ended.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Of a log that grows faster than we read it, what is read in one look.
_LOOK_BYTES = 1 << 18
_SHOWN = 300
#: A line in which Python names what was raised, behind whatever a logger writes before it.
_RAISED = re.compile(r"(?:^|\s)(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit): \S")
#: Ours, or one that only says that another one is above it.
_NOT_THE_CAUSE = re.compile(r"See root cause above|Failed core proc|initialization failed")


class GrowingLog:
    """The lines of a file from where it ended when this was made, as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = self._at = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Those that are whole and were not told yet."""
        *whole, self._rest = (self._rest + self._more()).split(b"\n")
        self._rest = self._rest[-_LOOK_BYTES:]
        for line in whole:
            yield line.decode(errors="replace")

    def cause(self) -> str:
        """The first error since the start that says more than that there was one; "" for none.

        A server of many processes dies of one error and then writes the others' about it.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._began)
                raised = (line.decode(errors="replace").strip() for line in file)
                found = (one for one in raised if _RAISED.search(one))
                return next((one for one in found if not _NOT_THE_CAUSE.search(one)), "")[:_SHOWN]
        except OSError:
            return ""

    def _more(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                more = file.read(_LOOK_BYTES)
        except OSError:
            return b""
        self._at += len(more)
        return more


class Marks:
    """Which stages a program has come to: `(words, the stage that they begin)`, in their order.

    A stage whose words never come is missed, and its time is the one's before.
    """

    def __init__(self, marks: Sequence[tuple[str, str]]) -> None:
        self._left = list(marks)

    def begun(self, line: str) -> str | None:
        """The stage that this line begins."""
        for place, (words, stage) in enumerate(self._left):
            if words in line:
                del self._left[: place + 1]
                return stage
        return None
