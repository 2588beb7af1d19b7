"""When a replica that is there and does nothing is ended, so that it is started again. Pure.

A process that is stopped, or stuck in a loop, dies of nothing: the gateway takes it out of routing
(`policy.health`), and there it would stay. So whoever was taken out for so long is ended. Where all
replicas of a model are out at once, it is rather something that they share (a disk, a network, this
machine), which a new start does not mend and makes worse: then they get more time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE_S = 30.0
SHARED_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Out:
    """A replica of a model that was ready; `out_s` is how long it has been out, None: it is not."""

    replica: str
    out_s: float | None


@dataclass(frozen=True, slots=True)
class Hung:
    """A replica to be ended, and why."""

    replica: str
    reason: str


def hung(seen: Sequence[Out]) -> list[Hung]:
    """Who of a model's replicas is to be ended now."""
    out = [one for one in seen if one.out_s is not None]
    all_of_several = len(out) == len(seen) > 1
    patience_s = SHARED_PATIENCE_S if all_of_several else PATIENCE_S
    beside = ", as all others are" if all_of_several else ""
    return [
        Hung(one.replica, f"it hangs: out of routing for {one.out_s:.0f} s{beside}")
        for one in out
        if one.out_s is not None and one.out_s >= patience_s
    ]
