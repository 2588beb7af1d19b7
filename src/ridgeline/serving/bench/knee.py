"""Finds the highest load that a server bears: a search that is told results and says what next.

    load doubles:     1   2   4   8 x       x: the first load that is not borne
    then bisects:                 5.7   6.7 x   6.2 ...  until the bracket is within a tenth

No I/O and no clock: `sweep` runs the levels. A load is borne where goodput holds (its share is
at least `attainment`) and more load still comes out as more throughput.
"""

from dataclasses import dataclass, field
from math import sqrt

GROWTH = 2.0
NARROW = 1.1
LEAST_GAIN = 0.10
MOST_DRAIN_SHARE = 0.20
MOST_LEVELS = 24
MOST_HALVINGS = 6


@dataclass(frozen=True, slots=True)
class Level:
    """One load (requests/s, or workers) and what came of it.

    `arriving_s` is the time in which the requests arrived, `drain_s` how long after the last
    arrival the last answer came (both 0 in a closed loop), `e2e_p50_s` the median answer time.
    """

    load: float
    goodput_share: float
    tokens_per_s: float
    e2e_p50_s: float
    arriving_s: float = 0.0
    drain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a level was borne, and if not, why."""

    borne: bool
    reason: str


@dataclass(slots=True)
class Search:
    """The search from `start`. `closed` counts workers (whole numbers), else requests/s."""

    start: float
    attainment: float
    closed: bool = False
    levels: list[Level] = field(default_factory=list)
    best: Level | None = None
    worst: Level | None = None
    reason: str = ""

    def next_load(self) -> float | None:
        """The load to try next, None when the knee is known or not to be found."""
        if not self.levels:
            return self.start
        if len(self.levels) >= MOST_LEVELS:
            return None
        if self.worst is None:
            return self.levels[-1].load * GROWTH
        if self.best is None:
            return self._lower()
        return self._between(self.best.load, self.worst.load)

    def tell(self, level: Level) -> Verdict:
        """Take a level's result into the search."""
        verdict = self.judge(level)
        self.levels.append(level)
        if verdict.borne:
            self.best = level
        else:
            self.worst, self.reason = level, verdict.reason
        return verdict

    def judge(self, level: Level) -> Verdict:
        """Whether the level was borne.

        Saturation shows in an open loop by a backlog: beyond the time that one answer takes
        when the server is not crowded, draining took over a fifth of the time of arriving (so
        capacity is below 1 / 1.2 of the load). In a closed loop it shows by gain: under a tenth
        of the added workers came out as tokens.
        """
        if level.goodput_share < self.attainment:
            share = f"{100 * level.goodput_share:.1f} %"
            return Verdict(False, f"goodput {share} is under {100 * self.attainment:g} %")
        if self.closed and self.best is not None and level.load > self.best.load:
            gain = level.tokens_per_s / self.best.tokens_per_s - 1
            if gain < LEAST_GAIN * (level.load / self.best.load - 1):
                return Verdict(False, f"throughput saturated: {100 * gain:+.0f} % tokens/s")
        if not self.closed:
            calm_s = min(seen.e2e_p50_s for seen in (*self.levels, level))
            if level.drain_s > calm_s + MOST_DRAIN_SHARE * level.arriving_s:
                late = f"{level.drain_s:.1f} s to drain {level.arriving_s:.1f} s of arrivals"
                return Verdict(False, f"throughput saturated: {late}")
        return Verdict(True, "")

    def _lower(self) -> float | None:
        lower = self.levels[-1].load / GROWTH
        if len(self.levels) > MOST_HALVINGS or (self.closed and lower < 1):
            return None
        return float(int(lower)) if self.closed else lower

    def _between(self, low: float, high: float) -> float | None:
        middle = float(int(sqrt(low * high))) if self.closed else sqrt(low * high)
        if self.closed and middle <= low:
            middle = low + 1
        if high / low <= NARROW or (self.closed and middle >= high):
            return None
        return middle
