"""How far a simulation has come, on a terminal's stderr: virtual time, requests done, time left."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.serving.simulate.log import Tick

_EVERY_S = 0.3
_FIRST_S = 1.0  # whoever is done by then says nothing
_NS = 1_000_000_000


class Progress(AbstractContextManager["Progress"]):
    """`tick` is for the simulation; off a terminal it is None. `requests` of a run, 0 if unknown.

    `virtual_s` and `ended` are how far the present run has come, for whoever interrupts it.
    """

    def __init__(self, requests: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.virtual_s = 0.0
        self.ended = 0
        self._requests = requests
        self._now_s = now_s
        self._began_s = self._run_began_s = now_s()
        self._said_s = self._began_s + _FIRST_S - _EVERY_S
        self._is_terminal = sys.stderr.isatty()
        self._width = 0
        self._run = 1

    @property
    def tick(self) -> "Tick":
        """To be told to `simulate`."""
        return self._tick

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The line is gone."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()

    def _tick(self, at_ns: int, ended: int) -> None:
        now_s = self._now_s()
        if ended < self.ended:  # the next run
            self._run += 1
            self._run_began_s = now_s
        self.virtual_s, self.ended = at_ns / _NS, ended
        if self._is_terminal and now_s - self._said_s >= _EVERY_S:
            self._said_s = now_s
            self._say(self._line(now_s))

    def _line(self, now_s: float) -> str:
        run = f"run {self._run}, " if self._run > 1 else ""
        of = f" of {self._requests:,}" if self._requests else ""
        took_s = now_s - self._run_began_s
        left = ""
        if self._requests and self.ended and took_s:
            left = f", {took_s * (self._requests / self.ended - 1):.0f} s left"
        return f"{run}{self.ended:,}{of} requests, {self.virtual_s:,.0f} s simulated{left}"

    def _say(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = max(self._width, len(line))
