"""The clock of a replica's start: stages that follow each other without a gap.

It begins when the system started the process, before any line of ours has run. Replicas keep one
(`serving.engine`, `serving.fake`); `serving.control.start_stages` reads what they say of it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Called as a stage begins: (the stage, the one that thereby ended, what that took).
Turn = Callable[[str, str, float], None]

#: The first stage: from the system's start of the process to the first `begin`.
PROCESS = "process"
_STARTTIME = 19  # proc(5)'s field 22, counted behind the command's name


class StartClock:
    """`begin` says which stage begins; that ends the one before. `end` ends the last one."""

    def __init__(
        self, since_s: float, turn: Turn = lambda *_: None, *, stage: str = PROCESS
    ) -> None:
        self._stage = stage
        self._since_s = since_s
        self._turn = turn
        self._spent_s: dict[str, float] = {}

    @property
    def spent_s(self) -> dict[str, float]:
        """What each stage that has ended took, in order."""
        return dict(self._spent_s)

    def begin(self, stage: str) -> None:
        """From now on it is this stage."""
        ended, spent_s = self._stage, self.end()
        self._stage = stage
        self._turn(stage, ended, spent_s)

    def end(self) -> float:
        """The stage ends, and nothing begins; what it took. A stage that comes again adds up."""
        now_s = time.monotonic()
        spent_s = now_s - self._since_s
        self._spent_s[self._stage] = self._spent_s.get(self._stage, 0.0) + spent_s
        self._since_s = now_s
        return spent_s


def stage_event(stage: str, ended: str, spent_s: float) -> dict[str, Any]:
    """What a replica says to the process that started it when a stage begins."""
    return {"event": "stage", "stage": stage, "ended": ended, "spent_s": spent_s}


def process_began_s(pid: int) -> float:
    """When the system started a process, on `time.monotonic`, to a clock tick (10 ms).

    Now, where the system does not say: what came before is then missing.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(told.rpartition(")")[2].split()[_STARTTIME])
        began_s = ticks / os.sysconf("SC_CLK_TCK")
        # Side by side, so that nothing comes between the two clocks.
        age_s, now_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s, time.monotonic()
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic()
    return now_s - max(0.0, age_s)
