"""A platform that runs on this machine: its gateway, its console, and the replicas behind.

`ridgeline up` calls `LivePlatform.run`. What happens is told to a `Watcher`, which draws it.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from aiohttp.web import Application
from sqlalchemy import Engine

from ridgeline.errors import SpecError
from ridgeline.launch import running
from ridgeline.launch.door import Answer, Door, door_of
from ridgeline.paths import state_home
from ridgeline.platform.controllers import Controllers
from ridgeline.platform.managed import ManagedModel
from ridgeline.platform.reloading import Reloading
from ridgeline.serving.control.spares import Spares
from ridgeline.serving.control.workers import Workers
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.gateway.place import database_url
from ridgeline.serving.gateway.tenants import Tenants
from ridgeline.serving.spec import ModelSpec, UrlEngine
from ridgeline.spec import Platform
from ridgeline.store.database import open_store

#: How long running generations may go on after Ctrl-C before they are cut.
DRAIN_S = 30.0
#: How long the last words of replicas may take to reach clients, and replicas to leave.
PARTING_S = 5.0
#: How long a server that runs already may take to end what it has, once it is not wanted any more.
LEAVE_S = 600.0
#: How long a server that is said to run already may take to answer before we say otherwise.
EXTERNAL_S = 3.0
#: Requests at once in a replica of somebody else's engine: vLLM's own default.
_SLOTS = 256
#: Tokens of an answer whose request does not say, where somebody must pay for it.
_OUTPUT_TOKENS = 4096
#: How long the gateway may take to see what a replica says of itself.
SEEN_READY_S = 10.0


Status = Callable[[], Awaitable[Mapping[str, Any]]]


class Watcher(Protocol):
    """Who draws what happens."""

    def started(self, url: str, models: list[ModelSpec]) -> None:
        """The gateway listens; replicas are on their way."""

    def stage(self, replica: str, event: Mapping[str, Any]) -> None:
        """A replica said where it is in its start."""

    def died(self, replica: str, reason: str) -> None:
        """A replica is gone and will be started again."""

    def joined(self, replica: str, url: str, is_ready: bool) -> None:
        """A server that runs already is in routing, or will be as soon as it answers."""

    def ready(self, url: str) -> None:
        """Every replica has been ready once."""

    def draining(self) -> None:
        """No new requests; running ones finish."""


class LivePlatform:
    """Runs one platform from start to drained; one object, one run.

    Pages may be mounted on `gateway.app` before `run`.
    """

    def __init__(
        self,
        platform: Platform,
        watcher: Watcher,
        *,
        rules_tenants: bool = True,
        written: Platform | None = None,
    ) -> None:
        """With `rules_tenants` the database's tenants become those of the platform.

        `written` is the platform as its file has it, where options moved its name or address.
        Raises StoreError, SpecError.
        """
        self._platform = platform
        self._written = written or platform
        self._rules_tenants = rules_tenants
        self._watcher = watcher
        self._logs = state_home() / "logs" / platform.name
        self._config = _gateway_config(platform, self._logs)
        if rules_tenants:
            store = open_store(self._config.database)
            Tenants(store).sync(platform.tenants)
            store.dispose()
        self.gateway: Gateway | Workers = (
            Gateway(self._config)
            if self._config.workers == 1
            else Workers(self._config, self._logs)
        )
        self._failure: asyncio.Future[None] | None = None
        self._spares = Spares(platform.spares, self._logs / "spares.log", {})
        self._models = {
            model.name: ManagedModel(
                platform, model, self._logs, self, lambda: self.gateway, self._failed, self._spares
            )
            for model in platform.models
            if not isinstance(model.engine, UrlEngine)
        }
        #: By model, its servers that run already: by URL and key the replica's id.
        self._servers: dict[str, dict[tuple[str, str | None], str]] = {}
        #: Those of them that end what they have: their ids are not free yet.
        self._parting: set[str] = set()
        self._note: running.Running | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._awaited = sum(one.model.replicas.min for one in self._models.values())

    def mount(self, mount: Callable[[Application, Status, Engine], None]) -> None:
        """Pages for the gateway's app, before `run`; workers mount their own."""
        gateway = self.gateway
        if isinstance(gateway, Gateway):

            async def status() -> Mapping[str, Any]:
                return gateway.status()

            mount(gateway.app, status, gateway.store)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set: serve. Then drain, and leave nothing behind.

        Raises what a replica's first start ended with, or a SpecError when the port is taken.
        """
        for model in self._models.values():  # who asks at once must not hear that there is none
            await model.announce()
        url = await self._open()
        names = tuple(model.name for model in self._platform.models)
        self._failure = asyncio.get_running_loop().create_future()
        store = open_store(self._config.database)
        controllers = Controllers(store, self._models, self.gateway)
        self.gateway.control = lambda: {**controllers.shown(), "spares": self._spares.ready}
        reloading = self._reloading(controllers, store)
        door: Door | None = None
        loops: list[asyncio.Task[None]] = []
        try:
            self._note = note = running.write(self._platform.name, url, names, self._logs)
            self._watcher.started(url, self._platform.models)
            await self._add_external()
            await controllers.start()
            if not self._awaited:
                self._watcher.ready(url)
            loops = [self._looped(loop) for loop in controllers.loops()]
            door = Door(door_of(note), _handlers(reloading))
            await door.open()
            await _first([self._failure], stop)
            self._watcher.draining()
            await door.close()
            # Requests that are held still get the replica that they wait for.
            quiet = await self.gateway.drain(DRAIN_S)
            await _end(loops)
            models = [*self._models.values(), *reloading.leaving.values()]
            await self._part(models, quiet=quiet)
        finally:
            if door is not None:
                await door.close()
            await _end([*loops, *self._leaving])
            await reloading.close()
            for model in self._models.values():
                await model.close()
            await self._spares.close()
            await self.gateway.close()
            store.dispose()
            if self._note is not None:
                self._note.file.unlink(missing_ok=True)

    async def _part(self, models: list[ManagedModel], *, quiet: bool) -> None:
        """Replicas stop. Answers that did not end in time are told so, never just cut."""
        await asyncio.gather(*(one.stop(PARTING_S, at_once=not quiet) for one in models))
        if not quiet:
            await self.gateway.hang_up()
            await self.gateway.drain(PARTING_S)

    async def _open(self) -> str:
        """The gateway listens; its address."""
        there = self._platform.gateway
        try:
            return await self.gateway.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                problem, remedy = f"port {there.port} is taken", "--port 0 takes a free one"
            else:
                problem, remedy = error.strerror or str(error), "an address of this machine"
            raise SpecError(
                f"cannot listen on {there.host}: {problem}", where="gateway.listen", remedy=remedy
            ) from error

    async def _add_external(self) -> None:
        """Servers that run already join; who does not answer soon is told of, and joins later."""
        added = []
        for model in self._platform.models:
            if isinstance(model.engine, UrlEngine):
                added += self._join(model, model.engine.urls)
        ready = await asyncio.gather(
            *(self.gateway.until_ready(name, EXTERNAL_S) for name, _ in added)
        )
        for (name, url), is_ready in zip(added, ready, strict=True):
            self._watcher.joined(name, url, is_ready)

    def _join(self, model: ModelSpec, urls: Sequence[str]) -> list[tuple[str, str]]:
        """Servers that run already, and are not there yet, get requests: their ids and URLs."""
        there = self._servers.setdefault(model.name, {})
        key, added = self.key(model), []
        for url in urls:
            if (url, key) not in there:
                taken = {*there.values(), *self._parting}
                names = (f"{model.name}-{number}" for number in count())
                name = next(name for name in names if name not in taken)
                there[url, key] = name
                self.gateway.add_replica(ReplicaAddress(name, url, model.name, key))
                added.append((name, url))
        return added

    def _looped(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A loop of the controllers; where it fails for good the platform ends with that."""
        task = asyncio.create_task(loop)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._failed(error)

        task.add_done_callback(ended)
        return task

    def _reloading(self, controllers: Controllers, store: Engine) -> Reloading:
        return Reloading(
            self._platform,
            self._written,
            self,
            self._models,
            controllers,
            self.gateway,
            store,
            rules_tenants=self._rules_tenants,
            failed=self._failed,
        )

    # What of a platform changes when it is another one (platform.reloading.Served).

    def settings(self, platform: Platform) -> Mapping[str, ModelSettings]:
        """What the gateway has to know of the models."""
        return {model.name: _settings(model) for model in platform.models}

    def managed(self, platform: Platform, model: ModelSpec) -> ManagedModel:
        """A model that comes to those that are served: its failure does not end them."""
        return ManagedModel(
            platform,
            model,
            self._logs,
            self,
            lambda: self.gateway,
            lambda error: self._watcher.died(model.name, str(error)),
            self._spares,
        )

    def key(self, model: ModelSpec) -> str | None:
        """The key of servers that run already. Raises SpecError where it is not set."""
        if not isinstance(model.engine, UrlEngine):
            return None
        return _from_environment(model.engine.api_key_env, f"models {model.name}")

    async def servers(self, model: ModelSpec, wanted: Sequence[str]) -> None:
        """Those that come join, those that go end what they have."""
        self._join(model, wanted)
        there, key = self._servers[model.name], self.key(model)
        for server in [one for one in there if one[0] not in wanted or one[1] != key]:
            self._parting.add(name := there.pop(server))
            task = asyncio.create_task(self._leave(name))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self, replica: str) -> None:
        await self.gateway.remove_replica(replica, LEAVE_S)
        self._parting.discard(replica)

    def named(self, platform: Platform) -> None:
        """It is this platform from now on."""
        self._platform = platform
        if self._note is not None:
            names = tuple(model.name for model in platform.models)
            self._note = replace(self._note, models=names)
            self._note.save()

    def _failed(self, error: Exception) -> None:
        """A model cannot be started: the platform ends with that."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    # What replicas tell us (platform.managed.Heard).

    async def said(self, replica: str, event: Mapping[str, Any]) -> None:
        """Its stages are drawn; the last one to be ready opens the door."""
        if event["event"] == "ready":
            # Whoever is told that it is ready may ask at once: the gateway must know by then.
            await self.gateway.until_ready(replica, SEEN_READY_S)
        self._watcher.stage(replica, event)
        if event["event"] == "ready" and self._awaited:
            self._awaited -= 1
            if not self._awaited:
                self._watcher.ready(self.gateway.url)
        if event["event"] == "ready":
            self._spares.fill()  # not before: while replicas start, cores are theirs

    async def died(self, replica: str, reason: str) -> None:
        """It will be started again."""
        self._watcher.died(replica, reason)


def _handlers(reloading: Reloading) -> dict[str, Answer]:
    """What commands of this machine may ask of a platform that is up."""

    async def told(_: Mapping[str, Any]) -> Any:
        return await reloading.told()

    async def reload(values: Mapping[str, Any]) -> Any:
        wanted = Platform.model_validate(values["spec"])
        return [change.told() for change in await reloading.reload(wanted)]

    return {"spec": told, "reload": reload}


def _gateway_config(platform: Platform, logs: Path) -> GatewayConfig:
    gateway = platform.gateway
    key = _from_environment(gateway.api_key_env, "gateway", "api_key_env")
    return GatewayConfig(
        host=gateway.host,
        port=gateway.port,
        database=database_url(platform.name, gateway.database),
        api_key=key,
        admin_key=_from_environment(gateway.admin_key_env, "gateway", "admin_key_env"),
        open=key is None and not platform.tenants,
        log_file=str(logs / "requests.jsonl"),
        log_prompts=gateway.log_prompts,
        usage_logs=str(state_home() / platform.name / "usage"),
        tracing=gateway.tracing,
        workers=gateway.workers,
        models={model.name: _settings(model) for model in platform.models},
    )


def _settings(model: ModelSpec) -> ModelSettings:
    """What the gateway has to know of a model."""
    replicas, engine = model.replicas, model.engine
    own = engine.max_seqs if not isinstance(engine, UrlEngine) else _SLOTS
    return ModelSettings(
        rule=model.routing.policy,
        wait_s=model.routing.wait,
        session_header=model.routing.session_header,
        slots=replicas.slots or own,
        price=model.price.price,
        max_output_tokens=model.max_output_tokens or _OUTPUT_TOKENS,
        usd_per_hour=replicas.usd_per_hour,
    )


def _from_environment(variable: str | None, where: str, field: str = "api_key_env") -> str | None:
    """A key from the environment variable that the spec names."""
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise SpecError(
            f"the environment variable {variable} is not set",
            where=f"{where}.{field}",
            remedy=f"export {variable}=…",
        )
    return value


async def _first(failures: list[asyncio.Future[None]], stop: asyncio.Event) -> None:
    """Until told to stop; what fails for good ends the platform with its error."""
    waiting = asyncio.create_task(stop.wait())
    try:
        ends: list[asyncio.Future[Any]] = [waiting, *failures]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for one in done - {waiting}:
            one.result()
    finally:
        waiting.cancel()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
