"""From one version of a model to the next in virtual time, by rollout or by rolling update.

Both versions are kinds of replicas that serve one name. `policy.rollout` decides as in
`control.rollouts`, on what was seen of the requests of each; `policy.rolling` decides as a
Deployment's controller does, on what is there and ready.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Protocol

from ridgeline.serving.policy.gate import USUAL_VARIANCE, Arm, Planned, judge, planned, stratum
from ridgeline.serving.policy.rolling import Rolling, There, roll
from ridgeline.serving.policy.rollout import Phase, Plan, Rollout, Seen, advance, desired
from ridgeline.serving.policy.split import Split
from ridgeline.serving.policy.states import State
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.service import Service
from ridgeline.serving.simulate.setup import Change
from ridgeline.timeline import NS, Timeline

#: How often a rollout looks, as live ones do, and a rolling update.
_LOOKS_S, _ROLLS_S = 0.25, 1.0
#: What was decided: the kind that changes, and what is said of it.
Told = Callable[[str, str], None]
#: Tells the gateway who gets which version.
Route = Callable[[Split | None], None]


class Changing(Protocol):
    """A change that goes on."""

    def saw(self, asked: Asked) -> None:
        """A request of the model has ended."""

    def failed(self, kind: str) -> None:
        """A replica of this kind lost one, whether or not another one went on with it."""


def changing(
    number: int,
    change: Change,
    services: Mapping[str, Service],
    route: Route,
    timeline: Timeline,
    told: Told,
) -> Changing:
    """Puts the change down; it goes on by itself. `number` is its own among those who look."""
    old, new = services[change.old], services[change.new]
    if isinstance(change.how, Rolling):
        return RollingUpdate(number, change, change.how, (old, new), timeline, told)
    return VirtualRollout(number, change, change.how, (old, new), route, timeline, told)


def _ready(service: Service) -> int:
    return sum(one.state is State.READY for one in service.there)


class RollingUpdate:
    """`stuck` is said once where nothing has moved for as long as the deadline."""

    def __init__(
        self,
        number: int,
        change: Change,
        how: Rolling,
        services: tuple[Service, Service],
        timeline: Timeline,
        told: Told,
    ) -> None:
        self._change = change
        self._how = how
        self._old, self._new = services
        self._replicas = self._old.model.replicas
        self._timeline = timeline
        self._told = told
        self._turn = rank(Kind.LOOK, number)
        self._there: tuple[There, There] | None = None
        self._since_ns = 0
        self._is_stuck = False
        timeline.at(round(change.at_s * NS), self._turn, self._look)

    def saw(self, asked: Asked) -> None:
        """It does not ask how the new version does."""

    def failed(self, kind: str) -> None:
        """Nor whether it fails."""

    def _look(self, _: object) -> None:
        now_ns = self._timeline.now_ns
        there = tuple(There(one.size, _ready(one)) for one in (self._old, self._new))
        if there != self._there:
            self._there, self._since_ns = (there[0], there[1]), now_ns
        sizes = roll(self._replicas, there[0], there[1], self._how)
        if (sizes.old, sizes.new) != (there[0].asked, there[1].asked):
            self._told(self._change.new, sizes.reason)
            self._new.resize(sizes.new)
            self._old.resize(sizes.old)
        if not sizes.old and there[1].ready == self._replicas:
            self._told(self._change.new, "done: all are of the new version and ready")
            return
        if not self._is_stuck and now_ns - self._since_ns >= self._how.deadline_s * NS:
            self._is_stuck = True
            self._told(self._change.new, f"stuck for {self._how.deadline_s:g} s: {sizes.reason}")
        self._timeline.at(now_ns + round(_ROLLS_S * NS), self._turn, self._look)


class VirtualRollout:
    """One of Ridgeline's own."""

    def __init__(
        self,
        number: int,
        change: Change,
        plan: Plan,
        services: tuple[Service, Service],
        route: Route,
        timeline: Timeline,
        told: Told,
    ) -> None:
        self._change = change
        self._plan = plan
        self._old, self._new = services
        self._replicas = self._old.model.replicas
        self._route = route
        self._timeline = timeline
        self._told = told
        self._turn = rank(Kind.LOOK, number)
        self._arms = {change.old: Arm(), change.new: Arm()}
        self._planned = Planned(0, USUAL_VARIANCE)
        self._was_ready = False
        at_ns = round(change.at_s * NS)
        name = self._old.model.served
        self._rollout = Rollout(f"rollout-{number}", name, change.old, change.new, since_ns=at_ns)
        timeline.at(at_ns, self._turn, self._begin)

    def saw(self, asked: Asked) -> None:
        """As `gateway.arms`: what a client did says nothing; nor do times of two replicas."""
        if asked.end is not End.ANSWERED:
            return
        ttft_s = tpot_s = None
        if asked.tries == 1:
            ttft_s = (asked.first_ns - asked.at_ns) / NS
            if asked.said > 1:
                tpot_s = (asked.done_ns - asked.first_ns) / NS / (asked.said - 1) or None
        group = stratum(asked.prompt_tokens - asked.cached_tokens, asked.others)
        kind = asked.replica.rpartition("-")[0]
        self._arms[kind] = self._arms[kind].saw(group, ttft_s, tpot_s)

    def failed(self, kind: str) -> None:
        """As `saw`."""
        self._arms[kind] = self._arms[kind].failed()

    def _begin(self, _: object) -> None:
        if self._has_room:
            self._make()
        self._look(None)

    @property
    def _has_room(self) -> bool:
        return bool(self._new.size) or self._new.has_room

    def _look(self, _: object) -> None:
        now_ns, rollout = self._timeline.now_ns, self._rollout
        is_checked = rollout.phase is Phase.CHECKING
        ready = _ready(self._new)
        judgement = None
        if rollout.phase is Phase.CANARY:
            old, new = self._arms[self._change.old], self._arms[self._change.new]
            judgement = judge(old, new, self._planned.requests, self._change.criteria)
        seen = Seen(
            now_ns,
            self._has_room if is_checked else None,
            ready,
            self._was_ready,
            (now_ns - round(self._change.at_s * NS)) / NS,
            self._change.is_alike if is_checked and ready else None,
            "as given",
            judgement,
        )
        self._was_ready = self._was_ready or ready > 0
        after = advance(rollout, seen, self._plan)
        if after != rollout:
            self._rollout = after
            if after.phase is Phase.CANARY:
                share = self._plan.steps[after.step]
                known = self._planned.variance
                self._planned = planned(
                    self._arms[self._change.old], share, self._change.criteria, known
                )
            self._told(self._change.new, f"{after.phase}: {after.reason}")
            self._make()
        if after.is_over:
            self._route(None)
            return
        self._timeline.at(now_ns + round(_LOOKS_S * NS), self._turn, self._look)

    def _make(self) -> None:
        """The route first, as it is what callers notice."""
        wanted = desired(self._rollout, self._plan)
        self._route(wanted.split)
        self._arms = dict.fromkeys(self._arms, Arm())
        for service in (self._new, self._old):
            share = wanted.shares.get(service.model.name)
            service.resize(0 if share is None else max(1, ceil(self._replicas * share)))
