"""What the console shows of the control plane that lies in the database. Reads only.

The gateway's status says what is there now; here is how it came to that: the autoscaler's last
decisions, and the rollouts, those that are over too. Called by `console`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import Engine

from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.scale_log import ScaleLog
from ridgeline.serving.gateway.kept import Kept

MOST_DECISIONS: Final = 200
MOST_ROLLOUTS: Final = 20


@dataclass(frozen=True, slots=True)
class Resized:
    """A model had `before` replicas, and `replicas` are wanted since. `demand` may be unknown."""

    model: str
    at_unix_s: float
    before: int
    replicas: int
    demand: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class ControlView:
    """Newest first; of `now_unix_s`, the server's clock.

    Decisions from before `since_unix_s` are left out; None: none is. Rollouts are as
    `ridgeline rollout status --json` has them.
    """

    now_unix_s: float
    since_unix_s: float | None
    decisions: tuple[Resized, ...]
    rollouts: tuple[Mapping[str, Any], ...]


def control_view(store: Engine, now_ns: int) -> ControlView:
    """The last decisions and rollouts of all models. Raises StoreError."""
    decisions = tuple(
        Resized(one.model, one.at_ns / 1e9, one.before, one.replicas, one.demand, one.reason)
        for one in ScaleLog(store).latest(most=MOST_DECISIONS)
    )
    rollouts = tuple(kept.told() for kept in RolloutLog(store).latest(most=MOST_ROLLOUTS))
    since_unix_s = decisions[-1].at_unix_s if len(decisions) == MOST_DECISIONS else None
    return ControlView(now_ns / 1e9, since_unix_s, decisions, rollouts)


class ControlData:
    """The answer for the console's page. `close` before the store is disposed of."""

    def __init__(self, store: Engine, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._view = Kept(lambda: msgspec.json.encode(control_view(store, now_ns())))

    async def view(self) -> bytes:
        """A `ControlView` as JSON. Raises StoreError."""
        return await self._view.get()

    async def close(self) -> None:
        """Wait for a thread that is still at work."""
        await self._view.close()
