"""The gateway: OpenAI's API in front of any number of OpenAI-compatible replicas.

`ridgeline up` makes one `Gateway`, mounts the console on its `app`, starts it, and adds and
removes replicas while it runs. It starts no process itself: replicas are addresses.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

import ridgeline
from ridgeline.serving.gateway.admin import add_admin
from ridgeline.serving.gateway.admission import Admission
from ridgeline.serving.gateway.arms import Arms
from ridgeline.serving.gateway.callers import DEFAULT_TENANT, Caller, Callers
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.gateway.line import Line
from ridgeline.serving.gateway.live_replica import LiveReplica
from ridgeline.serving.gateway.logs import JsonHandler, RequestLog, log_to
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.proxy import Proxy
from ridgeline.serving.gateway.record import Record
from ridgeline.serving.gateway.recovery import Past, Recovery, Source, getter
from ridgeline.serving.gateway.redact import Redactor
from ridgeline.serving.gateway.replica_time import ReplicaTime
from ridgeline.serving.gateway.routes import make_app
from ridgeline.serving.gateway.tenants import Tenants
from ridgeline.serving.gateway.tracing import open_tracing
from ridgeline.serving.gateway.upstream import Upstream
from ridgeline.serving.http_guard import GuardedServer, http_url
from ridgeline.serving.policy.failures import RetryBudget
from ridgeline.serving.policy.split import Split
from ridgeline.serving.policy.states import State
from ridgeline.serving.usage_log import PastLogs
from ridgeline.store.database import open_store

Scrape = Callable[[], Awaitable[bytes]]


class Gateway:
    """One gateway: `start`, then `drain` and `close`. `app` can be added to before `start`.

    `scrape` gives what Prometheus gets; without it that is this process's own metrics. Raises
    StoreError where the database cannot be used.
    """

    def __init__(self, config: GatewayConfig, *, scrape: Scrape | None = None) -> None:
        self._settings = dict(config.models)  # one for all who read the config: see set_models
        self.config = config = replace(config, models=self._settings)
        self.url = ""
        #: What whoever starts the replicas shows of that, for `status`.
        self.control: Callable[[], Mapping[str, Any]] = dict
        self._store = open_store(config.database)
        self._fleet = Fleet(config)
        self._record = Record(time.monotonic_ns())
        self._arms = Arms()
        self._metrics = Metrics(self._fleet, self._record)
        self._upstream = Upstream(config.timeouts)
        self._ledger = Ledger(self._store, f"{config.worker}-{time.time_ns():x}")
        self._ledger.on_commit = self._metrics.committed
        self._line = Line(self._fleet.slots)
        self._fleet.on_change = self._line.changed
        self._admission = Admission(config, self._fleet, self._ledger, self._line, self._metrics)
        self._replica_time = ReplicaTime(self._store)
        self._fleet.on_doing = self._replica_time.saw
        self._redactor = Redactor([config.api_key, config.admin_key])
        self._log = RequestLog(
            Path(config.log_file) if config.log_file else None,
            self._redactor,
            prompts=config.log_prompts,
        )
        self._log.on_dropped = self._metrics.dropped
        self._said: JsonHandler | None = None
        self._tracing = open_tracing(config.tracing, worker=config.worker)
        self._proxy = proxy = Proxy(
            config,
            self._fleet,
            self._upstream,
            self._admission,
            self._record,
            self._metrics,
            self._log,
            self._tracing,
            self._arms,
            RetryBudget(),
        )
        is_open = config.open and config.api_key is None
        callers = Callers(
            self._store,
            open_caller=Caller(DEFAULT_TENANT, "") if is_open else None,
            api_key=config.api_key,
            admin_key=config.admin_key,
        )
        self._metrics.reads(
            queue_length=self._queue_length, reservations_open=lambda: self._ledger.open_requests
        )
        self.app = make_app(proxy, self._fleet, scrape or self._own_metrics, callers)
        add_admin(self.app, Tenants(self._store), callers)
        self._server = GuardedServer(self.app, config.patience)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def store(self) -> Engine:
        """The database, for the pages that are mounted on `app`."""
        return self._store

    async def start(self) -> str:
        """Listen, and give the base URL. Raises OSError where the address cannot be had."""
        await self._ledger.open()
        self._log.open()
        self._said = log_to(self._log)
        session = self._upstream.open()
        self._fleet.start(session)
        recovery = Recovery(
            self._ledger,
            self._sources,
            getter(session),
            past=self._past_logs(),
            most_attempts=self.config.retries + 1,
        )
        recovery.on_settled = self._metrics.recovered
        self._tasks = [
            asyncio.create_task(recovery.run(), name="recovery"),
            asyncio.create_task(self._replica_time.run(), name="replica time"),
        ]
        try:
            port = await self._server.start(
                self.config.host, self.config.port, shared=self.config.workers > 1
            )
        except OSError:
            await self.close()
            raise
        self.url = http_url(self.config.host, port)
        return self.url

    async def drain(self, grace_s: float) -> bool:
        """Take no new request; whether the running ones ended within `grace_s`."""
        return await self._server.drain(grace_s)

    async def hang_up(self) -> None:
        """Leave every replica: answers that still run end with an error event."""
        await self._upstream.close()

    async def close(self) -> None:
        """Let go of every connection and task. After `drain` nobody notices."""
        await self._server.stop(0)
        await self._proxy.close()
        await self._admission.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._fleet.stop()
        await self._upstream.close()
        await self._ledger.close()
        self._tracing.close()
        if self._said is not None:
            logging.getLogger().removeHandler(self._said)
        self._log.close()
        self._store.dispose()

    def add_replica(self, address: ReplicaAddress) -> None:
        """A replica joins; it gets requests once it is ready. SpecError where its id is taken."""
        self._redactor.learn(address.api_key)
        usd_per_hour = self.config.model(address.model).usd_per_hour
        self._replica_time.joined(address.id, address.model, usd_per_hour)
        self._fleet.add(address)

    async def until_ready(self, name: str, within_s: float) -> bool:
        """Wait until a replica gets requests; False where it does not in time, or is not there."""
        return await self._fleet.until_ready(name, within_s)

    def drain_replica(self, name: str) -> None:
        """No new request goes there. KeyError where there is no such replica."""
        self._fleet.drain(name)

    async def remove_replica(self, name: str, grace_s: float = 0.0) -> None:
        """A replica leaves; what runs there gets `grace_s` first. Nobody there: nothing done."""
        await self._fleet.remove(name, grace_s)

    async def expect(self, model: str, start_s: float | None) -> None:
        """Requests for the model are held while none is ready: one comes in about `start_s`."""
        self._fleet.expect(model, start_s)

    async def set_split(self, model: str, split: Split | None) -> None:
        """Which callers get which version of a model, from now on; what is seen begins anew."""
        self._fleet.set_split(model, split)
        if split is None:
            self._arms.end(model)
        else:
            self._arms.begin(model)

    async def set_models(self, models: Mapping[str, ModelSettings]) -> None:
        """From now on models are routed, queued and charged by these settings."""
        self._settings.clear()
        self._settings.update(models)
        for replica in self._fleet.replicas:
            address = replica.address
            usd_per_hour = self.config.model(address.model).usd_per_hour
            self._replica_time.joined(address.id, address.model, usd_per_hour)
        self._fleet.settings_changed()

    async def look(self) -> Mapping[str, Any]:
        """`status`, as several workers give it too."""
        return self.status()

    def metrics_text(self) -> bytes:
        """What this process has counted, in Prometheus' format."""
        return self._metrics.text()

    def samples(self) -> dict[str, list[float]]:
        """The latencies behind the percentiles of `status`: those of workers are joined."""
        return self._record.samples(time.monotonic_ns())

    def status(self) -> dict[str, Any]:
        """What the console shows: times in seconds, shares 0..1, bounded in size."""
        now_ns = time.monotonic_ns()
        record = self._record
        return {
            "version": ridgeline.__version__,
            "uptime_s": (now_ns - record.began_ns) / 1e9,
            "in_flight": record.in_flight,
            "requests": record.requests,
            "output_tokens": record.tokens,
            "models": self._models(),
            "replicas": [_shown(replica, now_ns) for replica in self._fleet.replicas],
            "queues": self._queues(),
            "held": self._fleet.held,
            "arms": self._arms.told(),
            "control": self.control(),
            "rates": record.rates(now_ns),
            "latency": record.latency(now_ns),
            "recent": record.recent(),
            "errors": record.errors(),
        }

    async def _own_metrics(self) -> bytes:
        return self._metrics.text()

    def _models(self) -> list[dict[str, Any]]:
        """Every model somebody serves or will, with how many of its replicas are ready."""
        states: dict[str, list[State]] = {}
        for replica in self._fleet.replicas:
            for model in replica.view.models or ():
                states.setdefault(model, []).append(replica.view.state)
        return [
            {
                "id": model,
                "replicas": len(of),
                "ready": of.count(State.READY),
                "routing": self.config.model(model).rule,
            }
            for model, of in sorted(states.items())
        ]

    def _queues(self) -> list[dict[str, Any]]:
        """Who waits and runs, for each model, class and tenant that has something."""
        return [
            {
                "model": pool.model,
                "class": one.name,
                "tenant": flow.tenant,
                "queued": flow.queued,
                "running": flow.running,
                "counter_tokens": flow.counter_tokens,
                "oldest_wait_s": flow.oldest_wait_s,
            }
            for pool in self._line.snapshot()
            for one in pool.classes
            for flow in one.tenants
            if flow.queued or flow.running
        ]

    def _queue_length(self) -> dict[str, int]:
        lengths: dict[str, int] = {}
        for pool in self._line.snapshot():
            for one in pool.classes:
                lengths[one.name] = lengths.get(one.name, 0) + one.queued
        return lengths

    def _past_logs(self) -> Past:
        """Where to look for what replicas did that are not there any more."""
        folder = self.config.usage_logs
        return PastLogs(Path(folder)).find if folder else lambda *_: None

    def _sources(self, model: str) -> list[Source]:
        """Whom the recovery may ask: replicas of the model, those that left lately too."""
        return [
            Source(
                address.id,
                address.root,
                {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {},
            )
            for address in self._fleet.addresses(model)
        ]


def _shown(replica: LiveReplica, now_ns: int) -> dict[str, Any]:
    view, load = replica.view, replica.load
    reported = view.reported_ns
    return {
        "id": replica.id,
        "address": replica.address.root,
        "version": replica.address.version,
        "state": view.state.value,
        "reason": replica.note or replica.health.reason,
        "stages_s": {name: round(spent_s, 3) for name, spent_s in replica.stages.items()},
        "models": sorted(view.models or ()),
        "in_flight": view.running,
        "prefilling_tokens": view.uncached_tokens,
        "slots": view.slots,
        "running": load.running,
        "waiting": load.waiting,
        "kv_usage": load.kv_usage,
        "reported_s_ago": (now_ns - reported) / 1e9 if reported else None,
        "requests": replica.requests,
        "failures": replica.failures,
    }
