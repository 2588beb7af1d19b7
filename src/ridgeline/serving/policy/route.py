"""Which replica gets a request. Pure: the gateway and the simulator are its two callers.

Load is what the caller has sent and not yet seen end, counted in the same breath as the decision
(`Replica.dispatched`), so that a thousand requests in one instant see each other. What replicas
report about themselves is seconds old and only adds the load that somebody else put there; a
replica that reports nothing counts as unloaded. All that a decision depends on is in its `View`,
so a recorded one decides the same again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter
from typing import Literal

from ridgeline.serving.policy.ring import hash64, ring_of
from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import Saturation, Score, cost, keep

STALE_NS = 10_000_000_000  # a report older than this says nothing about now
FULL_KV = 0.95  # with more of its cache in use a replica soon interrupts what runs there
BOUND = 1.25  # the most load that a session may find where it belongs, in means


@dataclass(slots=True)
class Replica:
    """What a rule sees of a replica. The caller keeps one and updates it (decisions are frequent).

    `models` is None until the replica has said what it serves. `running` counts the caller's own
    requests there, `decoding` those of them past their first token, and `uncached_tokens` the
    prompt tokens of the others that no cache has. `others` is the load from elsewhere and
    `kv_usage` the share of its cache in use (None where it does not say) in the last report, taken
    at `reported_ns`. It takes `slots` requests at once, and has `adapters` loaded.
    """

    id: str
    state: State = State.STARTING
    models: frozenset[str] | None = None
    running: int = 0
    others: int = 0
    reported_ns: int = 0
    slots: int = 256
    uncached_tokens: int = 0
    decoding: int = 0
    kv_usage: float | None = None
    adapters: frozenset[str] = field(default=frozenset())

    def load(self, now_ns: int) -> int:
        """Requests there: our own, and those of others while the report is fresh."""
        return self.running + (self.others if self._is_fresh(now_ns) else 0)

    def is_full(self, now_ns: int) -> bool:
        """Whether one more request would have to wait there."""
        crowded = (self.kv_usage or 0.0) >= FULL_KV and self._is_fresh(now_ns)
        return crowded or self.load(now_ns) >= self.slots

    def dispatched(self, uncached_tokens: int = 0) -> "Sent":
        """A request was sent there; say so before anything else is decided."""
        self.running += 1
        self.uncached_tokens += uncached_tokens
        return Sent(self, uncached_tokens)

    def _is_fresh(self, now_ns: int) -> bool:
        return now_ns - self.reported_ns <= STALE_NS


@dataclass(slots=True, eq=False)
class Sent:
    """One request at a replica: its prefill and the rest of its load end apart, each once."""

    replica: Replica
    uncached_tokens: int
    is_decoding: bool = False
    is_finished: bool = False

    def prefilled(self) -> None:
        """Its first token came: no prompt token of it waits any more."""
        if not self.is_decoding and not self.is_finished:
            self.is_decoding = True
            self.replica.decoding += 1
            self.replica.uncached_tokens -= self.uncached_tokens

    def finished(self) -> None:
        """It ended, however it did."""
        if self.is_finished:
            return
        self.is_finished = True
        self.replica.running -= 1
        if self.is_decoding:
            self.replica.decoding -= 1
        else:
            self.replica.uncached_tokens -= self.uncached_tokens


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule sees of a request. `tried` are replicas that failed to take it.

    `warm_tokens` says how many of its `input_tokens` each replica is believed to have cached, and
    `continues` that it goes on where a former one ended: a conversation's next turn.
    `session` is what the client calls its conversation. `chance` is 64 random bits.
    """

    model: str
    tried: frozenset[str] = field(default=frozenset())
    input_tokens: int = 1
    warm_tokens: Mapping[str, int] = field(default_factory=dict)
    continues: bool = False
    session: str = ""
    adapter: str | None = None
    chance: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """All that one decision depends on. `replicas` are live: write a view down before counting.

    `last` is who got the previous request for this model, for taking turns.
    """

    rule: str
    request: Request
    replicas: Sequence[Replica]
    last: str = ""
    now_ns: int = 0
    saturation: Saturation = field(default_factory=Saturation)


@dataclass(frozen=True, slots=True)
class Route:
    """The replica that was chosen, why, and what was known of each one that could be."""

    replica: str
    reason: str
    scores: tuple[Score, ...] = ()

    @property
    def uncached_tokens(self) -> int:
        """What the request adds to its replica's prefill, to be told to `dispatched`."""
        return next((s.uncached_tokens for s in self.scores if s.replica == self.replica), 0)


@dataclass(frozen=True, slots=True)
class NoRoute:
    """No replica can take the request.

    "unknown": nobody serves the model, and nobody who might is still starting. "unready":
    somebody does, but not now. "tried": all that are ready had their chance.
    """

    kind: Literal["unknown", "unready", "tried"]
    reason: str


Rule = Callable[[View, list[Replica]], Route]
_load = attrgetter("load")
_cost = attrgetter("cost")


def route(view: View) -> Route | NoRoute:
    """The decision of the view's rule; KeyError where there is no such rule."""
    able = _able(view)
    return able if isinstance(able, NoRoute) else RULES[view.rule](view, able)


def round_robin(view: View, able: list[Replica]) -> Route:
    """The next one in order of id after the last, whatever its load."""
    chosen = min((one.id for one in able), key=lambda name: _turn(name, view.last))
    return Route(chosen, f"next in turn of {len(able)}", _scores(view, able))


def least_load(view: View, able: list[Replica]) -> Route:
    """The one with the fewest requests; among equals the next in turn."""
    scores = _scores(view, able)
    chosen = _least(scores, view.last)
    return Route(chosen.replica, f"{chosen.load} requests there, fewest of {len(able)}", scores)


def power_of_two(view: View, able: list[Replica]) -> Route:
    """The less loaded of two drawn at random: near least load, and it herds on nobody."""
    scores = _scores(view, able)
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
    scores = _scores(view, able)
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
    scores = _scores(view, able)
    kept = keep(scores, view.saturation, continues=view.request.continues)
    least = min(map(_cost, kept.scores))
    chosen = _least([score for score in kept.scores if score.cost == least], view.last)
    has = f"has {chosen.warm_tokens:,} of {view.request.input_tokens:,} tokens"
    said = f"{has}, {chosen.backlog_tokens:,} wait there, {chosen.load} requests"
    return Route(chosen.replica, f"{kept.reason}: {said}", scores)


RULES: Mapping[str, Rule] = {
    "prefix-sticky": prefix_sticky,
    "least-load": least_load,
    "round-robin": round_robin,
    "power-of-two": power_of_two,
    "session": session,
}


def _scores(view: View, able: list[Replica]) -> tuple[Score, ...]:
    """What the request meets and costs at each replica."""
    request, rows = view.request, []
    for one in able:
        warm = min(request.warm_tokens.get(one.id, 0), request.input_tokens)
        added = request.input_tokens - warm
        if request.adapter is not None and request.adapter not in one.adapters:
            added += view.saturation.adapter_tokens
        load, backlog = one.load(view.now_ns), one.uncached_tokens
        total = cost(load, backlog, added, 0 if request.continues else warm)
        rows.append(Score(one.id, load, backlog, warm, added, total))
    return tuple(rows)


def _least(scores: Sequence[Score], last: str) -> Score:
    return min(scores, key=lambda score: (score.load, *_turn(score.replica, last)))


def _turn(name: str, last: str) -> tuple[bool, str]:
    # A ring over the ids: those after `last` come first. Robust to replicas that come and go,
    # where a counter modulo their number would skip some and repeat others.
    return (name <= last, name)


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
