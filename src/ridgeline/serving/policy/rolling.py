"""A rolling update, as a Kubernetes Deployment does it: what many platforms have today. Pure.

    at most  replicas + surge        at once, old and new together
    at least replicas - unavailable  of them ready

Ridgeline's own way is `policy.rollout`. Here it is to compare with: it knows nothing of devices, so
that a full pool leaves the new ones pending, and nothing of how the new version does.
Source: Kubernetes' documentation of Deployments, 1.31 (rolling update, progress deadline).
"""

from dataclasses import dataclass
from math import ceil, floor


@dataclass(frozen=True, slots=True)
class Rolling:
    """The strategy: shares of the replicas, the surge rounded up and what is missing down.

    Raises ValueError where neither more nor fewer are allowed, for then nothing can change.
    """

    surge: float = 0.25
    unavailable: float = 0.25
    deadline_s: float = 600.0

    def __post_init__(self) -> None:
        if self.surge <= 0 and self.unavailable <= 0:
            raise ValueError("with no surge and nothing unavailable an update cannot begin")

    def most(self, replicas: int) -> int:
        """Old and new together."""
        return replicas + ceil(self.surge * replicas)

    def least_ready(self, replicas: int) -> int:
        """Of old and new together."""
        missing = floor(self.unavailable * replicas)
        # Both may round to nothing; then one may be missing.
        return replicas - (missing or (0 if ceil(self.surge * replicas) else 1))


@dataclass(frozen=True, slots=True)
class There:
    """Replicas of a version that are asked for, and how many of them are ready."""

    asked: int
    ready: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of each version there should be now, and why."""

    old: int
    new: int
    reason: str


def roll(replicas: int, old: There, new: There, how: Rolling) -> Sizes:
    """The next sizes on the way from `old` to `new`; the same as now where it must wait.

    Old ones that are not ready go first: they are nobody's loss, as long as the new ones that are
    not ready yet are not counted on.
    """
    if not old.asked and new.asked == replicas:
        return Sizes(0, new.asked, "all are of the new version")
    least = how.least_ready(replicas)
    more = min(max(0, how.most(replicas) - old.asked - new.asked), replicas - new.asked)
    may_go = old.asked + new.ready - least
    broken = max(0, min(old.asked - old.ready, may_go))
    spare = max(0, min(old.ready, may_go - broken, old.ready + new.ready - least))
    if more or broken or spare:
        said = f"{more} more of the new version, {broken + spare} fewer of the old one"
        return Sizes(old.asked - broken - spare, new.asked + more, said)
    waits = f"{new.asked - new.ready} new ones are not ready, and {least} of all must be"
    return Sizes(old.asked, new.asked, f"waits: {waits}")
