"""The gateway: OpenAI's API in front of any number of OpenAI-compatible replicas.

`ridgeline up` makes one `Gateway`, mounts the console on its `app`, starts it, and adds and
removes replicas while it runs. It starts no process itself: replicas are addresses.
"""

import time
from typing import Any

import ridgeline
from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.fleet import Fleet, LiveReplica
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.proxy import Proxy
from ridgeline.serving.gateway.record import Record
from ridgeline.serving.gateway.routes import make_app
from ridgeline.serving.gateway.upstream import Upstream
from ridgeline.serving.http_guard import GuardedServer
from ridgeline.serving.policy.route import RetryBudget, State


class Gateway:
    """One gateway: `start`, then `drain` and `close`. `app` can be added to before `start`."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.url = ""
        self._fleet = Fleet(config)
        self._record = Record(time.monotonic_ns())
        metrics = Metrics(self._fleet, self._record)
        self._upstream = Upstream(config.timeouts)
        proxy = Proxy(config, self._fleet, self._upstream, self._record, metrics, RetryBudget())
        self.app = make_app(proxy, self._fleet, metrics, config.api_key)
        self._server = GuardedServer(self.app, config.patience)

    async def start(self) -> str:
        """Listen, and give the base URL. Raises OSError where the address cannot be had."""
        self._fleet.start(self._upstream.open())
        try:
            port = await self._server.start(self.config.host, self.config.port)
        except OSError:
            await self.close()
            raise
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        self.url = f"http://{host}:{port}"
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
        await self._fleet.stop()
        await self._upstream.close()

    def add_replica(self, address: ReplicaAddress) -> None:
        """A replica joins; it gets requests once it is ready. SpecError where its id is taken."""
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
            "rates": record.rates(now_ns),
            "latency": record.latency(now_ns),
            "recent": record.recent(),
            "errors": record.errors(),
        }

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
                "routing": self.config.rule(model),
            }
            for model, of in sorted(states.items())
        ]


def _shown(replica: LiveReplica, now_ns: int) -> dict[str, Any]:
    view, load = replica.view, replica.load
    reported = view.reported_ns
    return {
        "id": replica.id,
        "address": replica.address.root,
        "state": view.state.value,
        "reason": replica.note or replica.health.reason,
        "models": sorted(view.models or ()),
        "in_flight": view.running,
        "running": load.running,
        "waiting": load.waiting,
        "kv_usage": load.kv_usage,
        "reported_s_ago": (now_ns - reported) / 1e9 if reported else None,
        "requests": replica.requests,
        "failures": replica.failures,
    }
