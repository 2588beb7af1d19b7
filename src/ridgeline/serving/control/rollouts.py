"""The loop of rollouts: read what goes on, look, ask `policy.rollout`, write down, make it true.

    store ─▶ look: replicas, evidence, likeness, wish ─▶ advance ─▶ store ─▶ route ─▶ replicas

What has to be there follows from what is stored, so a controller that is killed anywhere in this
goes on where it was. The route changes before replicas do, in every gateway worker at once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

from ridgeline.errors import RidgelineError, StoreError
from ridgeline.serving.control.rollout_log import Kept, RolloutLog
from ridgeline.serving.control.versions import Version
from ridgeline.serving.gateway.arms import evidence
from ridgeline.serving.policy.gate import USUAL_VARIANCE, Arm, Judgement, judge, planned
from ridgeline.serving.policy.rollout import Desired, Phase, Seen, advance, desired
from ridgeline.serving.policy.split import Split

_LOG = logging.getLogger(__name__)

#: Whether a version's replica answers as the reference that it is held to, and how alike.
Likeness = tuple[bool, str]


class Target(Protocol):
    """A model whose versions can be changed."""

    @property
    def spec_version(self) -> Version:
        """The version that the spec names."""

    def ready(self, version: str) -> int:
        """How many of a version's replicas take requests."""

    def has_room(self, version: Version) -> bool:
        """Whether this machine can hold a replica of it beside what runs, or does already."""

    def is_alike(self, new: Version, old: Version) -> Coroutine[Any, Any, Likeness]:
        """What a ready replica of the new one answers, beside its reference or the old one's."""

    def runs(self, versions: Mapping[str, Version], shares: Mapping[str, float]) -> None:
        """From now on these versions have replicas, each its share of what the demand needs."""


class Front(Protocol):
    """The gateway."""

    async def look(self) -> Mapping[str, Any]:
        """Its status."""

    async def set_split(self, model: str, split: Split | None) -> None:
        """Which callers get which version."""


class Rollouts:
    """All rollouts of a platform; `run` until cancelled."""

    def __init__(
        self,
        log: RolloutLog,
        targets: Mapping[str, Target],
        front: Front,
        may_act: Callable[[], bool] = lambda: True,
        every_s: float = 0.25,
    ) -> None:
        self._log = log
        self._targets = targets
        self._front = front
        self._may_act = may_act
        self._every_s = every_s
        #: By model, the rollout that goes on or ended last while we ran.
        self.seen: dict[str, Kept] = {}
        self._there: dict[str, Desired] = {}
        self._checks: dict[str, asyncio.Task[Likeness]] = {}
        self._began_s: dict[str, float] = {}  # by rollout, when we began to watch it
        self._were_ready: set[str] = set()

    async def run(self) -> None:
        """Round after round, until cancelled."""
        try:
            while True:
                try:
                    await self.round()
                except StoreError as error:
                    _LOG.error("rollouts stand still: %s", error)
                await asyncio.sleep(self._every_s)
        finally:
            for check in self._checks.values():
                check.cancel()

    async def round(self) -> None:
        """Move each rollout on as far as what is seen allows."""
        if not self._may_act():
            return
        for kept in await asyncio.to_thread(self._log.going_on):
            self.seen[kept.rollout.model] = kept
            target = self._targets.get(kept.rollout.model)
            if target is not None:
                await self._move(kept, target)

    async def _move(self, kept: Kept, target: Target) -> None:
        rollout, model = kept.rollout, kept.rollout.model
        room = target.has_room(kept.new) if rollout.phase is Phase.CHECKING else None
        if rollout.id not in self._there and room is not False:
            await self._make(kept, target, desired(rollout, kept.plan))
        arms = evidence([(await self._front.look()).get("arms", {})]).get(model, {})
        told = dict(kept.evidence)
        judgement = self._judged(kept, arms, told)
        ready = target.ready(rollout.new)
        began_s = self._began_s.setdefault(rollout.id, time.monotonic())
        now = Seen(
            time.time_ns(),
            room,
            ready,
            rollout.id in self._were_ready,
            time.monotonic() - began_s,
            *self._likeness(kept, target),
            judgement,
            kept.wish,
        )
        if ready:
            self._were_ready.add(rollout.id)
        after = advance(rollout, now, kept.plan)
        if after == rollout and told == kept.evidence:
            return
        if after.phase is Phase.CANARY and after.since_ns != rollout.since_ns:
            known = float(told.get("variance", USUAL_VARIANCE))
            share = kept.plan.steps[after.step]
            size = planned(arms.get(rollout.old, Arm()), share, kept.criteria, known)
            told |= {"planned": size.requests, "variance": size.variance}
        await asyncio.to_thread(self._log.moved, kept, after, target.spec_version, told)
        self.seen[model] = replace(kept, rollout=after, evidence=told)
        if after != rollout:
            _LOG.info("rollout %s of %s: %s: %s", after.id, model, after.phase, after.reason)
            await self._make(kept, target, desired(after, kept.plan), is_over=after.is_over)

    async def _make(
        self, kept: Kept, target: Target, wanted: Desired, *, is_over: bool = False
    ) -> None:
        """Make it true: the route first, since it is what callers notice."""
        model = kept.rollout.model
        await self._front.set_split(model, wanted.split)
        versions = {kept.old.id: kept.old, kept.new.id: kept.new}
        target.runs({name: versions[name] for name in wanted.shares}, wanted.shares)
        self._there[kept.rollout.id] = wanted
        if is_over:
            del self._there[kept.rollout.id]
            self._checks.pop(kept.rollout.id, None)
            await self._front.set_split(model, None)

    def _judged(
        self, kept: Kept, arms: Mapping[str, Arm], told: dict[str, Any]
    ) -> Judgement | None:
        """The gate's verdict; what it saw is added to `told`."""
        rollout = kept.rollout
        if rollout.phase is not Phase.CANARY:
            return None
        old, new = arms.get(rollout.old, Arm()), arms.get(rollout.new, Arm())
        judgement = judge(old, new, int(told["planned"]), kept.criteria)
        told["gates"] = [asdict(gate) for gate in judgement.gates]
        told["requests"] = {"old": old.requests, "new": new.requests}
        told["verdict"] = judgement.verdict.value
        return judgement

    def _likeness(self, kept: Kept, target: Target) -> tuple[bool | None, str]:
        """What the comparison with the reference says; it begins as soon as a replica is ready."""
        rollout = kept.rollout
        if rollout.phase is not Phase.CHECKING:
            return None, ""
        check = self._checks.get(rollout.id)
        if check is None:
            if target.ready(rollout.new):
                self._checks[rollout.id] = asyncio.create_task(target.is_alike(kept.new, kept.old))
            return None, ""
        if not check.done():
            return None, ""
        try:
            return check.result()
        except (RidgelineError, OSError) as error:
            return False, f"it cannot be compared with its reference: {error}"
