"""Which region answers a request. Pure.

The nearest one of those that may have its data, as long as a slot is free there; where all are
full, the one with the least load for its slots. A region without a ready replica is the last
resort: a request waits there only where it may go nowhere else. Where data must stay is kept
whatever happens.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reachable:
    """A region as a request's client sees it; `away_s` is the round trip to it.

    `load` counts requests that run or wait there, `slots` what its ready replicas take at once.
    """

    name: str
    away_s: float = 0.0
    load: int = 0
    slots: int = 0
    is_up: bool = True


@dataclass(frozen=True, slots=True)
class Chosen:
    """A region, or None where there is none for the request; and why."""

    region: str | None
    reason: str


def region_for(regions: Sequence[Reachable], residency: frozenset[str] | None = None) -> Chosen:
    """Where to send a request now; `residency` names the regions that may have its data."""
    allowed = [one for one in regions if residency is None or one.name in residency]
    up = [one for one in allowed if one.is_up]
    if not up:
        bound = "" if residency is None else f" of {', '.join(sorted(residency))}"
        return Chosen(None, f"no region{bound} is up")
    near = sorted(up, key=lambda one: (one.away_s, one.name))
    for place, one in enumerate(near):
        if one.load < one.slots:
            passed = f", {place} nearer ones are full" if place else ""
            return Chosen(one.name, f"the nearest with a free slot{passed}")
    ready = [one for one in near if one.slots]
    if not ready:
        return Chosen(near[0].name, "the nearest; none has a ready replica")
    least = min(ready, key=lambda one: ((one.load + 1) / one.slots, one.away_s, one.name))
    return Chosen(least.name, f"all are full, {least.load} requests for {least.slots} slots there")
