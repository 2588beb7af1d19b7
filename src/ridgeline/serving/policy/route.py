"""Which replica gets a request. Pure: the gateway and the simulator are its two callers.

Load is what the caller has sent and not yet seen end, counted in the same breath as the decision,
so that a thousand requests in one instant see each other. What replicas report about themselves
is seconds old and only adds the load that somebody else put there. Rules share one signature;
a rule that keeps a session or a prefix where it is warm joins by a field in `Request`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

STALE_NS = 10_000_000_000  # a report older than this says nothing about now


class State(StrEnum):
    """Whether a replica may be given requests; only `READY` may."""

    STARTING = "starting"  # never ready yet: it loads
    READY = "ready"
    DRAINING = "draining"  # ends what it has, gets nothing new
    DOWN = "down"  # was ready, and is not


@dataclass(slots=True)
class Replica:
    """What a rule sees of a replica. The caller keeps one and updates it (decisions are frequent).

    `models` is None until the replica has said what it serves. `running` counts the caller's own
    requests there. `others` is the load from elsewhere in the last report, taken at `reported_ns`.
    """

    id: str
    state: State = State.STARTING
    models: frozenset[str] | None = None
    running: int = 0
    others: int = 0
    reported_ns: int = 0

    def load(self, now_ns: int) -> int:
        """Requests there: our own, and those of others while the report is fresh."""
        fresh = now_ns - self.reported_ns <= STALE_NS
        return self.running + (self.others if fresh else 0)


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule sees of a request. `tried` are replicas that failed to take it."""

    model: str
    tried: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class Route:
    """The replica that was chosen, and why."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class NoRoute:
    """No replica can take the request.

    "unknown": nobody serves the model, and nobody who might is still starting. "unready":
    somebody does, but not now. "tried": all that are ready had their chance.
    """

    kind: Literal["unknown", "unready", "tried"]
    reason: str


Rule = Callable[[Request, Iterable[Replica], str, int], Route | NoRoute]


def round_robin(
    request: Request, replicas: Iterable[Replica], last: str, now_ns: int
) -> Route | NoRoute:
    """The next one in order of id after `last`, whatever its load."""
    del now_ns  # the rules' shared signature; taking turns needs no clock
    able = _able(request, replicas)
    if isinstance(able, NoRoute):
        return able
    chosen = min(able, key=lambda one: _turn(one, last))
    return Route(chosen.id, f"next in turn of {len(able)}")


def least_load(
    request: Request, replicas: Iterable[Replica], last: str, now_ns: int
) -> Route | NoRoute:
    """The one with the fewest requests; among equals the next in turn after `last`."""
    able = _able(request, replicas)
    if isinstance(able, NoRoute):
        return able
    chosen = min(able, key=lambda one: (one.load(now_ns), *_turn(one, last)))
    return Route(chosen.id, f"{chosen.load(now_ns)} requests there, fewest of {len(able)}")


RULES: dict[str, Rule] = {"round-robin": round_robin, "least-load": least_load}


def _turn(replica: Replica, last: str) -> tuple[bool, str]:
    # A ring over the ids: those after `last` come first. Robust to replicas that come and go,
    # where a counter modulo their number would skip some and repeat others.
    return (replica.id <= last, replica.id)


def _able(request: Request, replicas: Iterable[Replica]) -> list[Replica] | NoRoute:
    known = list(replicas)
    serving = [r for r in known if r.models is not None and request.model in r.models]
    ready = [r for r in serving if r.state is State.READY]
    able = [r for r in ready if r.id not in request.tried]
    if able:
        return able
    if ready:
        return NoRoute("tried", f"all {len(ready)} ready replicas were tried")
    may_come = [r for r in known if r.models is None and r.state is State.STARTING]
    if serving or may_come:
        return NoRoute("unready", f"no replica is ready: {_states([*serving, *may_come])}")
    return NoRoute("unknown", f"none of {len(known)} replicas serves {request.model}")


def _states(replicas: list[Replica]) -> str:
    return ", ".join(f"{one.id} {one.state}" for one in replicas)


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Retries may add a bounded share to the load, else they make an overload worse.

    Each request earns `share` of a retry, up to `most` saved; a retry costs one.
    """

    saved: float = 64.0
    share: float = 0.2
    most: float = 64.0

    def earn(self) -> "RetryBudget":
        """The budget after one more request."""
        return RetryBudget(min(self.most, self.saved + self.share), self.share, self.most)

    def spend(self) -> "RetryBudget | None":
        """The budget after one retry, or None where there is none left to spend."""
        if self.saved < 1:
            return None
        return RetryBudget(self.saved - 1, self.share, self.most)
