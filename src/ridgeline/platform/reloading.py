"""A running platform becomes what another spec says, while requests run: all of it, or nothing.

    refused?  ──yes──▶ nothing is done, the changes say why
       │ no
       ▼
    what can fail first: weights found, keys there, tenants written
       ▼
    gateway's settings ─▶ models that stay ─▶ models that came start ─▶ models that went drain

`platform.live` makes one and lets `ridgeline diff` and `ridgeline reload` in. Which changes can be
made so is for `platform.changes` to say.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Engine

from ridgeline.errors import SpecError
from ridgeline.platform.changes import Change, as_it_runs, diff
from ridgeline.platform.controllers import Controllers
from ridgeline.platform.managed import ManagedModel
from ridgeline.serving.control.versions import Version
from ridgeline.serving.gateway.config import ModelSettings
from ridgeline.serving.gateway.tenants import Tenants
from ridgeline.serving.spec import ModelSpec, UrlEngine
from ridgeline.spec import Platform

_LOG = logging.getLogger(__name__)


class Front(Protocol):
    """The gateway."""

    async def set_models(self, models: Mapping[str, ModelSettings]) -> None:
        """From now on models are routed, queued and charged by these."""


class Served(Protocol):
    """What of a platform that runs is changed."""

    def settings(self, platform: Platform) -> Mapping[str, ModelSettings]:
        """What its gateway has to know of the models."""

    def managed(self, platform: Platform, model: ModelSpec) -> ManagedModel:
        """A model that came, not started yet. Raises ModelError where its weights are not here."""

    def key(self, model: ModelSpec) -> str | None:
        """The key of servers that run already. Raises SpecError where its variable is not set."""

    async def servers(self, model: ModelSpec, wanted: Sequence[str]) -> None:
        """From now on these servers, which run already, have the model's requests."""

    def named(self, platform: Platform) -> None:
        """It is this platform now, for whoever asks what runs here."""


class Reloading:
    """`reload`, `told` for a diff, and `leaving`, the models that drain.

    `written` is the platform as its file has it, `platform` as it runs: options of the command line
    may have moved its name and address.
    """

    def __init__(
        self,
        platform: Platform,
        written: Platform,
        served: Served,
        models: MutableMapping[str, ManagedModel],
        controllers: Controllers,
        front: Front,
        store: Engine,
        *,
        rules_tenants: bool,
        failed: Callable[[Exception], None],
    ) -> None:
        self.leaving: dict[str, ManagedModel] = {}
        self._platform = platform
        self._written = written
        self._served = served
        self._models = models
        self._controllers = controllers
        self._front = front
        self._store = store
        self._rules_tenants = rules_tenants
        self._failed = failed
        self._one_by_one = asyncio.Lock()
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._drains: set[asyncio.Task[None]] = set()

    async def told(self) -> dict[str, Any]:
        """What runs now, for whoever compares it with another spec."""
        live = await asyncio.to_thread(self._controllers.live)
        return {
            "written": self._written.model_dump(mode="json"),
            "live": {name: version.written() for name, version in live.items()},
        }

    async def reload(self, wanted: Platform) -> list[Change]:
        """Make it what `wanted` says. Where one of the changes is refused, none is made.

        Raises ModelError, SpecError, StoreError; then too nothing has changed.
        """
        async with self._one_by_one:
            live = await asyncio.to_thread(self._controllers.live)
            changes = diff(as_it_runs(self._written, wanted, live), wanted)
            if not any(change.is_refused for change in changes):
                await self._make(wanted)
            return changes

    async def close(self) -> None:
        """Look after nothing any more."""
        tasks = [*self._loops.values(), *self._drains]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in self.leaving.values()))

    async def _make(self, wanted: Platform) -> None:
        there = self._platform
        platform = wanted.model_copy(update={"name": there.name, "gateway": there.gateway})
        now, before = _by_name(platform), _by_name(there)
        await self._must_be_free(set(before) - set(now), set(now) - set(before))
        # Whatever can fail comes first.
        came = {}
        for name, model in now.items():
            self._served.key(model)
            if name not in before and not isinstance(model.engine, UrlEngine):
                came[name] = await self._prepared(platform, model)
        if self._rules_tenants:
            await asyncio.to_thread(Tenants(self._store).sync, platform.tenants)
        # From here on nothing is refused any more.
        await self._front.set_models(self._served.settings(platform))
        for name in [name for name in before if name not in now]:
            await self._drain(before[name])
        for name, model in now.items():
            if isinstance(model.engine, UrlEngine):
                await self._served.servers(model, model.engine.urls)
            elif name in came:
                await self._start(name, *came[name])
            else:
                await self._models[name].becomes(platform, model)
                self._controllers.rescale(name)
        self._platform, self._written = platform, wanted
        self._served.named(platform)

    async def _must_be_free(self, gone: set[str], came: set[str]) -> None:
        """SpecError where a model is in the middle of something that must end first."""
        for name in came & set(self.leaving):
            problem = f"{name} still drains, since it was taken out of the spec before"
            raise SpecError(problem, where="models", remedy="reload again once it is gone")
        for name in await asyncio.to_thread(self._controllers.rolling) & gone:
            problem = f"a rollout of {name} goes on"
            raise SpecError(problem, where="models", remedy=f"ridgeline rollout abort {name}")

    async def _prepared(self, platform: Platform, model: ModelSpec) -> tuple[ManagedModel, Version]:
        """A model that came, and the version that it was left with, should it have been here."""
        managed = self._served.managed(platform, model)
        live = await asyncio.to_thread(self._controllers.version, model.name, managed)
        managed.runs({live.id: live}, {live.id: 1.0})  # raises where its weights are not here
        return managed, live

    async def _start(self, name: str, model: ManagedModel, live: Version) -> None:
        self._models[name] = model
        loop = await self._controllers.adopt(name, live)
        self._loops[name] = task = asyncio.create_task(loop)
        task.add_done_callback(self._ended)

    async def _drain(self, model: ModelSpec) -> None:
        if isinstance(model.engine, UrlEngine):
            await self._served.servers(model, [])
            return
        name = model.name
        self._controllers.release(name)
        if (loop := self._loops.pop(name, None)) is not None:
            loop.cancel()
        self.leaving[name] = leaving = self._models.pop(name)
        task = asyncio.create_task(self._leave(name, leaving))
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    async def _leave(self, name: str, model: ManagedModel) -> None:
        try:
            await model.leave()
            _LOG.info("%s has left", name)
        finally:
            await model.close()
        del self.leaving[name]

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._failed(error)


def _by_name(platform: Platform) -> dict[str, ModelSpec]:
    return {model.name: model for model in platform.models}
