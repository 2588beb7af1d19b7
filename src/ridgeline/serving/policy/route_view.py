"""What a routing rule sees and says: replicas, a request, the view of one decision, the route.

Load is what the caller has sent and not yet seen end, counted in the same breath as the decision
(`Replica.dispatched`), so that a thousand requests in one instant see each other. What replicas
report about themselves is seconds old and only adds the load that somebody else put there; a
replica that reports nothing counts as unloaded. All that a decision depends on is in its `View`,
so a recorded one decides the same again. `route` and `route_rules` hold the rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import Saturation, Score, cost

STALE_NS = 10_000_000_000  # a report older than this says nothing about now
FULL_KV = 0.95  # with more of its cache in use a replica soon interrupts what runs there


@dataclass(slots=True)
class Replica:
    """What a rule sees of a replica. The caller keeps one and updates it (decisions are frequent).

    `models` is None until the replica has said what it serves. `running` counts the caller's own
    requests there, `decoding` those of them past their first token, `uncached_tokens` the prompt
    tokens of the others that no cache has, and `prompt_tokens` those of all. In the last report,
    taken at `reported_ns`, `others` is the load from elsewhere, `waiting` who had to wait there and
    `kv_usage` the share of its cache in use (None where it does not say). It takes `slots` requests
    at once, and has `adapters` loaded.
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
    waiting: int | None = None
    prompt_tokens: int = 0
    adapters: frozenset[str] = field(default=frozenset())

    def load(self, now_ns: int) -> int:
        """Requests there: our own, and those of others while the report is fresh."""
        return self.running + (self.others if now_ns - self.reported_ns <= STALE_NS else 0)

    def is_full(self, now_ns: int) -> bool:
        """Whether one more request would have to wait there."""
        if self.running >= self.slots:
            return True
        if now_ns - self.reported_ns > STALE_NS:
            return False
        return self.running + self.others >= self.slots or (self.kv_usage or 0.0) >= FULL_KV

    def dispatched(self, uncached_tokens: int = 0, prompt_tokens: int = 0) -> "Sent":
        """A request was sent there; say so before anything else is decided."""
        self.running += 1
        self.uncached_tokens += uncached_tokens
        self.prompt_tokens += prompt_tokens
        return Sent(self, uncached_tokens, prompt_tokens)


@dataclass(slots=True, eq=False)
class Sent:
    """One request at a replica: its prefill and the rest of its load end apart, each once."""

    replica: Replica
    uncached_tokens: int
    prompt_tokens: int = 0
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
        self.replica.prompt_tokens -= self.prompt_tokens
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


@dataclass(frozen=True, slots=True)
class Rule:
    """How a replica is chosen among those that can take the request.

    One that `draws` needs the request's `chance`.
    """

    decide: Callable[[View, list[Replica]], Route]
    draws: bool = False


def scores_of(view: View, able: list[Replica]) -> tuple[Score, ...]:
    """What the request meets and costs at each replica."""
    request, now_ns, rows = view.request, view.now_ns, []
    prompt, warm_tokens, adapter = request.input_tokens, request.warm_tokens, request.adapter
    for one in able:
        warm = warm_tokens.get(one.id, 0)
        if warm > prompt:
            warm = prompt
        added = prompt - warm
        if adapter is not None and adapter not in one.adapters:
            added += view.saturation.adapter_tokens
        load, backlog = one.load(now_ns), one.uncached_tokens
        total = cost(load, backlog, added, 0 if request.continues else warm)
        rows.append(Score(one.id, load, backlog, warm, added, total))
    return tuple(rows)


def least_loaded(scores: Sequence[Score], last: str) -> Score:
    """The one with the fewest requests; among equals the next in turn after the last."""
    return min(scores, key=lambda score: (score.load, *turn(score.replica, last)))


def turn(name: str, last: str) -> tuple[bool, str]:
    """The place of a name in the order of turns."""
    # A ring over the ids: those after `last` come first. Robust to replicas that come and go,
    # where a counter modulo their number would skip some and repeat others.
    return (name <= last, name)
