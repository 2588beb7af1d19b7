"""Was the client itself too slow to be believed? Its own strain, measured and judged.

A load generator that cannot keep up reports its own queue as the server's latency. So the run
watches three things: how late the event loop wakes up, how late requests go out, and how much
of its one core the client used. `reasons_to_refuse` is the judge, a pure function.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ridgeline.serving.bench.spread import percentile

TICK_S = 0.02
MOST_CPU_SHARE = 0.85
LEAST_LATENESS_S = 0.025
MOST_LATENESS_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class Strain:
    """The client's own part in a run.

    `cpu_share` is the share of one core that the client's thread used (0..1). `loop_late_s` and
    `send_late_s` are 99th percentiles: of the event loop's lateness at a 20 ms tick, and of
    requests' sending after their scheduled moment.
    """

    cpu_share: float
    loop_late_s: float
    send_late_s: float


def reasons_to_refuse(strain: Strain, ttft_p99_s: float | None) -> list[str]:
    """Why these measurements must not be believed; empty where they may.

    - CPU: above 85 % of its core a client's answers wait for each other; in an M/M/1 queue the
      wait is then over 5 times the work itself.
    - Lateness: a loop that is late adds its lateness to what it measures, a sender that is late
      blurs the schedule. A tenth of the 99th percentile of TTFT is allowed, and 25 ms in any
      case: a client that drowns is late by ever more, a machine shared with the server only by
      the hiccups of its scheduler (15 ms were seen on two busy cores).
    """
    allowed_s = max(LEAST_LATENESS_S, MOST_LATENESS_SHARE * (ttft_p99_s or 0.0))
    reasons = []
    if strain.cpu_share > MOST_CPU_SHARE:
        reasons.append(
            f"it used {100 * strain.cpu_share:.0f} % of its core "
            f"(at most {100 * MOST_CPU_SHARE:.0f} %)"
        )
    for late_s, what in ((strain.loop_late_s, "its event loop"), (strain.send_late_s, "sending")):
        if late_s > allowed_s:
            reasons.append(
                f"{what} was {1e3 * late_s:.1f} ms late at p99 (at most {1e3 * allowed_s:.0f} ms)"
            )
    return reasons


@dataclass(slots=True)
class Watch:
    """Watches the event loop it runs in and the thread's CPU, from `run()` until cancelled."""

    now: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.thread_time
    late_s: list[float] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)

    async def run(self) -> None:
        """Tick until cancelled and note how late each tick came."""
        self._began = (self.now(), self.cpu())
        while True:
            due_s = self.now() + TICK_S
            await asyncio.sleep(TICK_S)
            self.late_s.append(max(0.0, self.now() - due_s))

    def strain(self, lags_s: Sequence[float]) -> Strain:
        """What was seen so far; `lags_s` are the requests' send lags (none in a closed loop)."""
        wall_s = self.now() - self._began[0]
        share = (self.cpu() - self._began[1]) / wall_s if wall_s > 0 else 0.0
        return Strain(share, _p99(self.late_s), _p99(lags_s))


def _p99(values: Sequence[float]) -> float:
    return percentile(sorted(values), 99) if values else 0.0
