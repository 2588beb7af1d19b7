"""From one version of a model to the next, and back where the next one is worse. Pure.

    CHECKING ─room, and answers as its reference─▶ CANARY ─last step passed─▶ KEEPING ─time─▶ DONE
        │                                            │ ▲ next step               │
        └──────────────── worse, full, or told to ───┴─┴─────────────────────────┴──▶ BACK

What has to be there follows from the state alone (`desired`), so whoever is killed between two
steps does nothing twice: it reads the state and makes it true. Going back changes the route first
and everything else later, while the old version is still there and warm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ridgeline.serving.policy.gate import Judgement, Verdict
from ridgeline.serving.policy.split import Split

_NS = 1_000_000_000


class Phase(StrEnum):
    """Where a rollout is."""

    CHECKING = "checking"  # its first replica starts and is compared with its reference
    CANARY = "canary"  # a part of the requests goes to it
    KEEPING = "keeping"  # all requests go to it, the old version stays warm
    DONE = "done"
    BACK = "back"  # all requests go to the old version, the new one leaves


@dataclass(frozen=True, slots=True)
class Plan:
    """How a rollout goes: the weights of its steps (0 to 1), and when it waits no longer.

    A step that has too few requests for a verdict after `step_most_s` waits on: to have seen little
    is no reason to go on. `keep_s` is how long the old version stays warm at the end.
    """

    steps: tuple[float, ...] = (0.05, 0.25, 0.5)
    start_most_s: float = 1200.0
    keep_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout of `model` from version `old` to `new`. `step` counts from 0 in CANARY."""

    id: str
    model: str
    old: str
    new: str
    phase: Phase = Phase.CHECKING
    step: int = 0
    since_ns: int = 0
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in (Phase.DONE, Phase.BACK)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found out since the last decision; None: not yet.

    `has_room` says whether the machine can hold the new version beside the old one, `is_alike`
    whether it answers as its reference does (`likeness` says how). `ready` are the new version's
    replicas that take requests; `was_ready` says that some were since whoever decides has been
    watching, which is `watched_s`. `judgement` is the gate's for the current step. `wish` is the
    operator's: "promote" or "abort".
    """

    now_ns: int
    has_room: bool | None = None
    ready: int = 0
    was_ready: bool = False
    watched_s: float = 0.0
    is_alike: bool | None = None
    likeness: str = ""
    judgement: Judgement | None = None
    wish: str = ""


@dataclass(frozen=True, slots=True)
class Desired:
    """What has to be there: the route, and the versions that have replicas.

    Each is named with its share of them (0 to 1), of which it has one at least.
    """

    split: Split
    shares: Mapping[str, float]


def advance(rollout: Rollout, seen: Seen, plan: Plan) -> Rollout:
    """The rollout as it is after what was seen; unchanged where nothing follows from it."""
    if rollout.is_over:
        return rollout
    if seen.wish == "abort":
        return _to(rollout, Phase.BACK, seen, "an operator aborted it")
    match rollout.phase:
        case Phase.CHECKING:
            return _checked(rollout, seen, plan)
        case Phase.CANARY:
            return _judged(rollout, seen, plan)
        case _:
            if _waited_s(rollout, seen) >= plan.keep_s or seen.wish == "promote":
                return _to(rollout, Phase.DONE, seen, "the old version may go")
            return rollout


def _checked(rollout: Rollout, seen: Seen, plan: Plan) -> Rollout:
    if seen.has_room is False:
        return _to(rollout, Phase.BACK, seen, "there is no room for a replica of it")
    if seen.is_alike is False:
        return _to(rollout, Phase.BACK, seen, f"it is not what it was: {seen.likeness}")
    if seen.ready and seen.is_alike:
        first = f"checked: {seen.likeness}; {plan.steps[0]:.0%} of requests"
        return _to(rollout, Phase.CANARY, seen, first)
    if _waited_s(rollout, seen) > plan.start_most_s:
        return _to(rollout, Phase.BACK, seen, f"not ready after {plan.start_most_s:g} s")
    return rollout


def _judged(rollout: Rollout, seen: Seen, plan: Plan) -> Rollout:
    if not seen.ready and seen.was_ready:
        return _to(rollout, Phase.BACK, seen, "none of its replicas is ready any more")
    if not seen.ready and seen.watched_s > plan.start_most_s:  # since a controller began anew
        return _to(rollout, Phase.BACK, seen, f"not ready after {plan.start_most_s:g} s")
    verdict = seen.judgement.verdict if seen.judgement else Verdict.WAIT
    said = seen.judgement.reason if seen.judgement else ""
    if verdict is Verdict.FAIL:
        return _to(rollout, Phase.BACK, seen, f"it is worse: {said}")
    if seen.wish == "promote":
        return _to(rollout, Phase.KEEPING, seen, "an operator promoted it")
    if verdict is not Verdict.PASS:
        return rollout
    if rollout.step + 1 < len(plan.steps):
        reason = f"{said}; {plan.steps[rollout.step + 1]:.0%} of requests"
        return replace(rollout, step=rollout.step + 1, since_ns=seen.now_ns, reason=reason)
    return _to(rollout, Phase.KEEPING, seen, f"{said}; all requests")


def desired(rollout: Rollout, plan: Plan) -> Desired:
    """What has to be there in this state."""
    old, new = rollout.old, rollout.new
    step = plan.steps[rollout.step]
    weight, shares = {
        Phase.CHECKING: (0.0, {old: 1.0, new: 0.0}),
        Phase.CANARY: (step, {old: 1.0, new: step}),
        Phase.KEEPING: (1.0, {old: 1.0, new: 1.0}),  # the old one could take all back
        Phase.DONE: (1.0, {new: 1.0}),
        Phase.BACK: (0.0, {old: 1.0}),
    }[rollout.phase]
    return Desired(Split(rollout.id, old, new, weight), shares)


def _to(rollout: Rollout, phase: Phase, seen: Seen, reason: str) -> Rollout:
    return replace(rollout, phase=phase, step=0, since_ns=seen.now_ns, reason=reason)


def _waited_s(rollout: Rollout, seen: Seen) -> float:
    return (seen.now_ns - rollout.since_ns) / _NS
