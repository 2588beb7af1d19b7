"""One model whose replicas run on this machine: how many there are, and how long a start takes.

`platform.live` makes one for each such model. Its autoscaler always runs: with `min` equal to `max`
it only sees to it that there are as many.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from ridgeline.platform.launches import has_devices, launch_of
from ridgeline.serving.control.autoscaler import Scaling
from ridgeline.serving.control.deployment import Deployment, Routing
from ridgeline.serving.control.likeness import is_alike
from ridgeline.serving.control.replicas import Startable
from ridgeline.serving.control.rollouts import Likeness
from ridgeline.serving.control.room import room_for
from ridgeline.serving.control.spares import Spares
from ridgeline.serving.control.target import settings_of, target_for
from ridgeline.serving.control.versions import Version, version_of
from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.models.weights import settled
from ridgeline.serving.schedule import Floor, floor_at
from ridgeline.serving.spec import ModelSpec
from ridgeline.spec import Platform

#: How long a replica that is not needed any more may take to end what it has.
DRAIN_S = 600.0
#: How long a start takes, until one was seen.
START_S = 30.0


class Front(Routing, Protocol):
    """The gateway, as far as models are concerned."""

    def add_replica(self, address: ReplicaAddress) -> None:
        """It gets requests once it is ready."""

    async def expect(self, model: str, start_s: float | None) -> None:
        """Requests are held while none is ready: one comes in about `start_s`."""


class Heard(Protocol):
    """Who draws what happens, and waits for the first to be ready."""

    async def said(self, replica: str, event: Mapping[str, Any]) -> None:
        """It is at a stage of its start, or is ready."""

    async def died(self, replica: str, reason: str) -> None:
        """It is gone; it will be started again."""


class ManagedModel:
    """A model and its replicas.

    `failed` hears where one that is always there fails to start before any start succeeded. Raises
    SpecError where the spec names step times that the catalog has not.
    """

    def __init__(
        self,
        platform: Platform,
        model: ModelSpec,
        logs: Path,
        heard: Heard,
        front: Callable[[], Front],
        failed: Callable[[Exception], None],
        spares: Spares | None = None,
    ) -> None:
        self.model = model = settled(model)
        self.spec_version = version_of(model)
        self.start_s: float | None = None
        self._target = target_for(model)
        self._platform = platform
        self._logs = logs
        self._heard = heard
        self._front = front
        self._failed = failed
        self._spares = spares
        self._wanted = 0
        self._deployments: dict[str, Deployment] = {}
        self._ready: dict[str, dict[str, str]] = {}  # by version: the replicas and their URLs
        self._urls: dict[str, str] = {}
        self._shares: Mapping[str, float] = {}
        self.runs({self.spec_version.id: self.spec_version}, {self.spec_version.id: 1.0})

    @property
    def size(self) -> int:
        """Replicas that serve or start, of the version that could serve everybody."""
        full = (name for name, share in self._shares.items() if share == 1)
        return max(self._deployments[name].size for name in full)

    def resize(self, wanted: int) -> None:
        """From now on the demand needs so many; each version has its share of that."""
        self._wanted = wanted
        for name, deployment in self._deployments.items():
            share = self._shares.get(name)
            # One of a version that is tried is there even where nobody asks for the model now.
            is_there = share is not None and (wanted or share < 1)
            deployment.resize(max(1, ceil(wanted * (share or 0))) if is_there else 0)

    def runs(self, versions: Mapping[str, Version], shares: Mapping[str, float]) -> None:
        """From now on these versions have replicas, each its share of what the demand needs."""
        for name, version in versions.items():
            if name not in self._deployments:
                self._deployments[name] = self._deployment(version)
        self._shares = dict(shares)
        self.resize(self._wanted)

    def ready(self, version: str) -> int:
        """How many of a version's replicas take requests."""
        return len(self._ready.get(version, ()))

    def has_room(self, version: Version) -> bool:
        """Whether this machine can hold a replica of it beside what runs, or does already."""
        there = self._deployments.get(version.id)
        if there is not None and there.size:
            return True
        spec = version.applied(self.model)
        return room_for(spec) and has_devices(spec)

    async def is_alike(self, new: Version, old: Version) -> Likeness:
        """What a ready replica of the new one answers, beside its reference or the old one's."""
        (url, *_) = self._ready[new.id].values()
        return await is_alike(new, old, url, self.model.name)

    async def stop(self, grace_s: float, *, at_once: bool = False) -> None:
        """End every replica: what runs gets `grace_s`, or with `at_once` an error."""
        stops = (one.stop(grace_s, at_once=at_once) for one in self._deployments.values())
        await asyncio.gather(*stops)

    async def close(self) -> None:
        """Nothing of it is left."""
        await asyncio.gather(*(one.close() for one in self._deployments.values()))

    @property
    def ready_ever(self) -> list[str]:
        """Its replicas that were ready in this life, and do not leave."""
        ready = {name for some in self._ready.values() for name in some}
        staying = (name for one in self._deployments.values() for name in one.staying)
        return [name for name in staying if name in ready]

    async def end(self, replica: str, reason: str) -> None:
        """Its process is ended; it is started again."""
        await asyncio.gather(*(one.end(replica, reason) for one in self._deployments.values()))

    def _deployment(self, version: Version) -> Deployment:
        label = "" if version.id == self.spec_version.id else f"@{version.id[:6]}"
        heard = _OfVersion(self, version.id)
        ready = self._ready.setdefault(version.id, {})
        return Deployment(
            self._launch(version, label),
            heard,
            heard,
            is_ready=ready.__contains__,
            failed=self._start_failed,
            drain_s=DRAIN_S,
            start_most_s=self.model.replicas.start_timeout,
        )

    def _launch(self, version: Version, label: str) -> Callable[[int], Startable]:
        """How its replicas are started, by what the spec says of it then."""

        def launch(number: int) -> Startable:
            model = version.applied(self.model)
            made = launch_of(self._platform, model, self._logs, label=label, spares=self._spares)
            return made(number)

        launch(0)  # raises now, where its weights are not here
        return launch

    def shown(self) -> dict[str, Any]:
        """What there is of it, for the console: versions with their replicas, and its bounds."""
        replicas = self.model.replicas
        return {
            "model": self.model.name,
            "least": replicas.min,
            "most": replicas.most,
            "start_s": self.start_s,
            "per_replica": self._target.per_replica,
            "per_replica_source": self._target.source,
            "versions": [
                {
                    "id": name,
                    "share": self._shares.get(name, 0.0),
                    "replicas": one.size,
                    "ready": self.ready(name),
                    "leaving": one.leaving,
                }
                for name, one in self._deployments.items()
                if one.size or one.leaving or name in self._shares
            ],
        }

    @property
    def sleeps(self) -> bool:
        """Whether there may be no replica at all."""
        return self.model.replicas.min == 0

    async def announce(self) -> None:
        """Whoever asks while no replica is ready is held: asleep, starting or died, one comes."""
        await self._front().expect(self.model.name, self.start_s or START_S)

    async def start(self, live: Version) -> None:
        """The first replicas start, in this version. ModelError where its weights are gone."""
        self.runs({live.id: live}, {live.id: 1.0})
        self.resize(self.model.replicas.min)

    async def becomes(self, platform: Platform, model: ModelSpec) -> None:
        """The spec says otherwise of it, but for its version, which runs on."""
        slept = self.sleeps
        self._platform, self.model = platform, model
        self.spec_version = version_of(model)
        if self.sleeps != slept:
            start_s = (self.start_s or START_S) if self.sleeps else None
            await self._front().expect(model.name, start_s)

    async def leave(self) -> None:
        """It is not served any more: its replicas end what they have. Returns when none is left."""
        await self._front().expect(self.model.name, None)
        self.resize(0)
        await asyncio.gather(*(one.gone() for one in self._deployments.values()))

    @property
    def scaling(self) -> Scaling:
        """How it is scaled."""
        scale = self.model.replicas.scale
        floors = [Floor(one.at, one.min) for one in scale.cron]
        return Scaling(
            self.model.name,
            settings_of(self.model.replicas, self._target),
            lambda unix_s: floor_at(floors, scale.timezone, unix_s),
            start_s=lambda: self.start_s or START_S,
        )

    # What its replicas say.

    async def listens(self, version: str, replica: str, url: str) -> None:
        """It joins the gateway, which sends it requests once it is ready."""
        address = ReplicaAddress(replica, url, self.model.name, version=version)
        self._urls[replica] = url
        self._front().add_replica(address)

    async def said(self, version: str, replica: str, event: Mapping[str, Any]) -> None:
        """Once it is ready it is known how long a start takes."""
        if event["event"] == "ready":
            self._ready[version][replica] = self._urls[replica]
            self.start_s = event["start_s"]
            await self.announce()
        await self._heard.said(replica, event)

    async def died(self, version: str, replica: str, reason: str) -> None:
        """It leaves the gateway until it listens again."""
        await self.leaves(version, replica, 0.0)
        await self._heard.died(replica, reason)

    async def leaves(self, version: str, replica: str, grace_s: float) -> None:
        """No new request goes there; returns once nothing runs there, or after `grace_s`."""
        self._ready[version].pop(replica, None)
        await self._front().remove_replica(replica, grace_s)

    def _start_failed(self, error: Exception) -> None:
        """Somebody waits for the first start of a model that is always there, and sees its end.

        One that sleeps is started beside others that serve: they must not go down with it.
        """
        if self.start_s is None and not self.sleeps:
            self._failed(error)


@dataclass(frozen=True, slots=True)
class _OfVersion:
    """What a deployment's replicas say goes to its model, with the version."""

    model: ManagedModel
    version: str

    async def listens(self, replica: str, url: str) -> None:
        await self.model.listens(self.version, replica, url)

    async def said(self, replica: str, event: Mapping[str, Any]) -> None:
        await self.model.said(self.version, replica, event)

    async def died(self, replica: str, reason: str) -> None:
        await self.model.died(self.version, replica, reason)

    async def remove_replica(self, name: str, grace_s: float = 0.0) -> None:
        await self.model.leaves(self.version, name, grace_s)
