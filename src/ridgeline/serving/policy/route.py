"""Which replica gets a request. Pure: the gateway and the simulator are its two callers.

`route` leaves out those that cannot take the request, and lets the rule of its view choose among
the others. These are the rules we stand for; `route_rules` has those of others, to compare with.
"""

from collections.abc import Mapping
from math import ceil
from operator import attrgetter

from ridgeline.serving.policy.ring import hash64, ring_of
from ridgeline.serving.policy.route_rules import THEIRS
from ridgeline.serving.policy.route_view import (
    FULL_KV,
    STALE_NS,
    NoRoute,
    Replica,
    Request,
    Route,
    Rule,
    Sent,
    View,
    least_loaded,
    scores_of,
    turn,
)
from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import keep

__all__ = [
    "FULL_KV", "OURS", "RULES", "STALE_NS", "NoRoute", "Replica", "Request", "Route", "Sent",
    "View", "route",
]  # fmt: skip

BOUND = 1.25  # the most load that a session may find where it belongs, in means

_cost = attrgetter("cost")


def route(view: View) -> Route | NoRoute:
    """The decision of the view's rule; KeyError where there is no such rule."""
    able = _able(view)
    return able if isinstance(able, NoRoute) else RULES[view.rule].decide(view, able)


def round_robin(view: View, able: list[Replica]) -> Route:
    """The next one in order of id after the last, whatever its load."""
    chosen = min((one.id for one in able), key=lambda name: turn(name, view.last))
    return Route(chosen, f"next in turn of {len(able)}", scores_of(view, able))


def least_load(view: View, able: list[Replica]) -> Route:
    """The one with the fewest requests; among equals the next in turn."""
    scores = scores_of(view, able)
    chosen = least_loaded(scores, view.last)
    return Route(chosen.replica, f"{chosen.load} requests there, fewest of {len(able)}", scores)


def power_of_two(view: View, able: list[Replica]) -> Route:
    """The less loaded of two drawn at random: near least load, and it herds on nobody."""
    scores = scores_of(view, able)
    if len(scores) == 1:
        return Route(scores[0].replica, "the only one", scores)
    ranked = sorted(scores, key=attrgetter("replica"))
    first = ranked.pop(view.request.chance % len(ranked))
    second = ranked[(view.request.chance >> 32) % len(ranked)]
    chosen, other = (second, first) if second.load < first.load else (first, second)
    said = f"{chosen.load} requests there, {other.load} on {other.replica}"
    return Route(chosen.replica, f"of two by chance: {said}", scores)


def session(view: View, able: list[Replica]) -> Route:
    """Where the session belongs on the hash ring, or the next there with load to spare."""
    if not view.request.session:
        chosen = least_load(view, able)
        return Route(chosen.replica, f"no session; {chosen.reason}", chosen.scores)
    scores = scores_of(view, able)
    by_name = {score.replica: score for score in scores}
    most = ceil(BOUND * (sum(score.load for score in scores) + 1) / len(scores))
    ring = ring_of(tuple(sorted(one.id for one in view.replicas)))
    for passed, name in enumerate(ring.owners(hash64(view.request.session))):
        if name in by_name and by_name[name].load + 1 <= most:
            reason = f"{passed} before it on the ring are full or away" if passed else "its place"
            return Route(name, f"session {view.request.session}: {reason}", scores)
    raise AssertionError(f"the least loaded is within {most} requests: {scores}")


def prefix_sticky(view: View, able: list[Replica]) -> Route:
    """Where the conversation is cached until that replica is saturated, else the cheapest."""
    scores = scores_of(view, able)
    kept = keep(scores, view.saturation, continues=view.request.continues)
    least = min(map(_cost, kept.scores))
    chosen = least_loaded([score for score in kept.scores if score.cost == least], view.last)
    has = f"has {chosen.warm_tokens:,} of {view.request.input_tokens:,} tokens"
    said = f"{has}, {chosen.backlog_tokens:,} wait there, {chosen.load} requests"
    return Route(chosen.replica, f"{kept.reason}: {said}", scores)


OURS: Mapping[str, Rule] = {
    "prefix-sticky": Rule(prefix_sticky),
    "least-load": Rule(least_load),
    "round-robin": Rule(round_robin),
    "power-of-two": Rule(power_of_two, draws=True),
    "session": Rule(session),
}
RULES: Mapping[str, Rule] = {**OURS, **THEIRS}


def _able(view: View) -> list[Replica] | NoRoute:
    """Those that can take the request; the full ones only where all are."""
    request, known = view.request, view.replicas
    serving = [r for r in known if r.models is not None and request.model in r.models]
    ready = [r for r in serving if r.state is State.READY]
    able = [r for r in ready if r.id not in request.tried]
    if able:
        return [r for r in able if not r.is_full(view.now_ns)] or able
    if ready:
        return NoRoute("tried", f"all {len(ready)} ready replicas were tried")
    may_come = [r for r in known if r.models is None and r.state in (State.STARTING, State.LOADING)]
    if serving or may_come:
        return NoRoute("unready", f"no replica is ready: {_states([*serving, *may_come])}")
    return NoRoute("unknown", f"none of {len(known)} replicas serves {request.model}")


def _states(replicas: list[Replica]) -> str:
    return ", ".join(f"{one.id} {one.state}" for one in replicas)
