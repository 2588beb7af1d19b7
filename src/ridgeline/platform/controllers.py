"""The loops that look after a platform's models: how many replicas, which version, and who may act.

`platform.live` makes one of these and runs its loops; what they decide is on record in the store.
"""

import os
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from sqlalchemy import Engine

from ridgeline.platform.managed import ManagedModel
from ridgeline.serving.control.autoscaler import Autoscaler
from ridgeline.serving.control.hangs import Hangs
from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.rollouts import Rollouts
from ridgeline.serving.control.scale_log import Lease, ScaleLog, keep
from ridgeline.serving.control.versions import Version
from ridgeline.serving.policy.split import Split


class Front(Protocol):
    """The gateway."""

    async def look(self) -> Mapping[str, Any]:
        """Its status."""

    async def set_split(self, model: str, split: Split | None) -> None:
        """Which callers get which version."""


class Controllers:
    """Of all models whose replicas we start. The store is closed by whoever opened it."""

    def __init__(self, store: Engine, models: Mapping[str, ManagedModel], front: Front) -> None:
        self._models = models
        self._lease = Lease(store, "controller", f"{os.getpid()}@{os.uname().nodename}")
        self._rollout_log = RolloutLog(store)
        self._front = front
        self._scale_log = ScaleLog(store)
        self._scalers = {name: self._scaler(one) for name, one in models.items()}
        self._rollouts = Rollouts(self._rollout_log, models, front, self._may_act)

    async def start(self) -> None:
        """The first replicas start, each model's in the version that it was left with.

        Raises ModelError where that version's weights are gone, StoreError.
        """
        for name, model in self._models.items():
            await model.start(self.version(name, model))

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs from then on, each until cancelled."""
        scalers = (scaler.run() for scaler in self._scalers.values())
        hangs = Hangs(self._models, self._front.look, self._may_act)
        return [keep(self._lease), self._rollouts.run(), hangs.run(), *scalers]

    def version(self, name: str, model: ManagedModel) -> Version:
        """The version of a model that its requests go to. Raises StoreError."""
        return self._rollout_log.live(name, model.spec_version)

    async def adopt(self, name: str, live: Version) -> Coroutine[Any, Any, None]:
        """A model has come: its first replicas start. Gives the loop that runs from then on."""
        model = self._models[name]
        self._scalers[name] = scaler = self._scaler(model)
        await model.start(live)
        return scaler.run()

    def release(self, name: str) -> None:
        """A model goes: nobody decides how many replicas it has any more."""
        self._scalers.pop(name).release()

    def rescale(self, name: str) -> None:
        """A model is scaled by what its spec says now."""
        self._scalers[name].scaling = self._models[name].scaling

    def live(self) -> dict[str, Version]:
        """The version of each model that requests go to. Raises StoreError."""
        return {name: self.version(name, model) for name, model in list(self._models.items())}

    def rolling(self) -> set[str]:
        """The models that are on their way from a version to another. Raises StoreError."""
        return {kept.rollout.model for kept in self._rollout_log.going_on()}

    def _scaler(self, model: ManagedModel) -> Autoscaler:
        return Autoscaler(model.scaling, model, self._front.look, self._scale_log, self._may_act)

    def shown(self) -> dict[str, Any]:
        """What the console shows of replicas and rollouts."""
        models = []
        for name, model in self._models.items():
            latest, told = self._scalers[name].latest, model.shown()
            if latest is not None:
                told["wanted"], told["demand"] = latest.replicas, latest.demand
                told["reason"] = latest.reason
            models.append(told)
        return {
            "models": models,
            "rollouts": [kept.told() for kept in self._rollouts.seen.values()],
        }

    def _may_act(self) -> bool:
        return self._lease.held
