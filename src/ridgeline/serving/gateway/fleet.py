"""The replicas behind a gateway: who is there, in which state, with which load.

The live shell around `policy.route` and `policy.health`: it looks, asks them, keeps what they
say and acts. One task for each replica looks at it; requests report what they meet (`saw`).
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession

from ridgeline.errors import SpecError
from ridgeline.serving.gateway.config import ANY, GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.probe import Load, Probe, ProbeError
from ridgeline.serving.openai import ApiError, model_not_found
from ridgeline.serving.policy.health import Health, Sign, judge
from ridgeline.serving.policy.route import RULES, NoRoute, Replica, Request, State

MODELS_EVERY_S = 30.0  # a ready replica's list of models changes seldom (adapters)


@dataclass(slots=True)
class LiveReplica:
    """One replica: its address, the policy's view of it, and what was learned.

    `names` maps a model as clients call it to what this replica calls it. `entries` are its
    model objects by the clients' name. `note` says why it is not ready, where we know better.
    """

    address: ReplicaAddress
    view: Replica
    health: Health = field(default_factory=Health)
    load: Load = field(default_factory=Load)
    names: dict[str, str] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    takes_usage_option: bool = True
    requests: int = 0
    failures: int = 0
    note: str = ""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """Its name on this platform."""
        return self.address.id

    def took(self) -> None:
        """A request was sent there; in the same breath as the decision."""
        self.view.running += 1
        self.requests += 1
        self.idle.clear()

    def gave_back(self) -> None:
        """A request there has ended, however it did."""
        self.view.running -= 1
        if not self.view.running:
            self.idle.set()


class Fleet:
    """All replicas. `add`, `remove` and `drain` work at any time, also before `start`."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._replicas: dict[str, LiveReplica] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._session: ClientSession | None = None
        self._last: dict[str, str] = {}  # for each model, who got the last request

    @property
    def replicas(self) -> list[LiveReplica]:
        """Every replica, in the order in which they came."""
        return list(self._replicas.values())

    def start(self, session: ClientSession) -> None:
        """Begin to look at the replicas, over this session."""
        self._session = session
        for replica in self.replicas:
            self._watch(replica)

    async def stop(self) -> None:
        """Look no longer; running requests are not touched."""
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.cancel()
        await asyncio.gather(*watches.values(), return_exceptions=True)

    def add(self, address: ReplicaAddress) -> None:
        """A replica joins; it gets requests once it is ready. SpecError where its id is taken."""
        if address.id in self._replicas:
            raise SpecError(
                f"there already is a replica {address.id!r}",
                where="gateway",
                remedy="another id, or remove that one first",
            )
        models = None if address.model == ANY else frozenset({address.model})
        replica = LiveReplica(address, Replica(address.id, models=models))
        replica.idle.set()
        self._replicas[address.id] = replica
        if self._session is not None:
            self._watch(replica)

    def drain(self, name: str) -> None:
        """No new request goes there; KeyError where there is no such replica."""
        self._judge(self._replicas[name], Sign.DRAIN)

    async def remove(self, name: str, grace_s: float) -> None:
        """Drain a replica, wait at most `grace_s` for what runs there, then forget it.

        Requests that still run there go on for as long as the replica answers them.
        """
        replica = self._replicas.get(name)
        if replica is None:
            return
        self._judge(replica, Sign.DRAIN)
        with suppress(TimeoutError):
            await asyncio.wait_for(replica.idle.wait(), grace_s)
        if self._replicas.get(name) is replica:
            del self._replicas[name]
            watch = self._watches.pop(name, None)
            if watch is not None:
                watch.cancel()

    async def until_ready(self, name: str, within_s: float) -> bool:
        """Wait until a replica gets requests; False where it does not in time, or is not there."""
        replica = self._replicas.get(name)
        if replica is None:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(replica.ready.wait(), within_s)
        return replica.ready.is_set()

    def models(self) -> list[dict[str, Any]]:
        """The models that can be asked for now: OpenAI's objects, with who serves them."""
        union: dict[str, dict[str, Any]] = {}
        for replica in self.replicas:
            if replica.view.state is State.READY:
                for name, entry in replica.entries.items():
                    merged = union.setdefault(name, {**entry, "replicas": []})
                    merged["replicas"].append(replica.id)
        return [union[name] for name in sorted(union)]

    def knows(self, model: str) -> bool:
        """Whether any replica serves the model, in whatever state it is."""
        return any(model in (one.view.models or ()) for one in self._replicas.values())

    def choose(self, model: str, tried: frozenset[str]) -> LiveReplica | None:
        """The replica for a request, already counted there; None where all had their chance.

        Raises ApiError 404 where nobody serves the model, 503 where nobody does now.
        """
        rule = RULES[self._config.rule(model)]
        views = [replica.view for replica in self._replicas.values()]
        answer = rule(Request(model, tried), views, self._last.get(model, ""), time.monotonic_ns())
        if isinstance(answer, NoRoute):
            self._refuse(model, answer)
            return None
        self._last[model] = answer.replica
        chosen = self._replicas[answer.replica]
        chosen.took()
        return chosen

    def saw(self, replica: LiveReplica, sign: Sign) -> None:
        """A request met this on its way."""
        if sign is Sign.REFUSED:
            replica.failures += 1
        self._judge(replica, sign)

    def _refuse(self, model: str, answer: NoRoute) -> None:
        if answer.kind == "unknown":
            raise model_not_found(model, [entry["id"] for entry in self.models()])
        if answer.kind == "unready":
            raise ApiError(
                503,
                f"The model `{model}` is not ready: {answer.reason}.",
                code="model_not_ready",
                headers={"Retry-After": str(max(1, round(self._config.probe_every_s)))},
            )

    def _judge(self, replica: LiveReplica, sign: Sign) -> None:
        replica.health = judge(replica.health, sign)
        replica.view.state = replica.health.state
        if replica.view.state is State.READY:
            replica.ready.set()
        else:
            replica.ready.clear()

    def _watch(self, replica: LiveReplica) -> None:
        assert self._session is not None, "watched only once started"
        probe = Probe(self._session, replica.address, self._config.timeouts.probe_s)
        self._watches[replica.id] = asyncio.create_task(
            self._look_forever(replica, probe), name=f"watch {replica.id}"
        )

    async def _look_forever(self, replica: LiveReplica, probe: Probe) -> None:
        models_ns = 0
        while True:
            sign = await probe.ready()
            was_ready = replica.view.state is State.READY
            stale = time.monotonic_ns() - models_ns > MODELS_EVERY_S * 1e9
            if sign is Sign.READY and (stale or not was_ready):
                sign = await self._learn_models(replica, probe)
                models_ns = time.monotonic_ns()
            if sign is Sign.READY:
                await self._learn_load(replica, probe)
            self._judge(replica, sign)
            ready = replica.view.state is State.READY
            await asyncio.sleep(
                self._config.probe_every_s if ready else self._config.probe_starting_s
            )

    async def _learn_models(self, replica: LiveReplica, probe: Probe) -> Sign:
        """What it serves, under the clients' names; not ready where that is not its model."""
        try:
            entries = {entry["id"]: entry for entry in await probe.models()}
        except ProbeError as error:
            replica.note = str(error)
            return Sign.NOT_READY
        wanted = replica.address.model
        if wanted == ANY:
            replica.names = {name: name for name in entries}
        elif wanted in entries:
            replica.names = {wanted: wanted}
        elif len(entries) == 1:
            replica.names = {wanted: next(iter(entries))}
        else:
            replica.note = f"does not serve {wanted}, but {', '.join(sorted(entries)) or 'nothing'}"
            return Sign.NOT_READY
        replica.note = ""
        replica.entries = {
            name: {"object": "model", "created": 0, "owned_by": "", **entries[theirs], "id": name}
            for name, theirs in replica.names.items()
        }
        replica.view.models = frozenset(replica.names)
        return Sign.READY

    async def _learn_load(self, replica: LiveReplica, probe: Probe) -> None:
        """How full it is. Our own requests are in its numbers, so only the rest is others'."""
        running_before = replica.view.running
        replica.load = load = await probe.load()
        ours = max(running_before, replica.view.running)  # both ends of the look: never too many
        replica.view.others = max(0, (load.running or 0) + (load.waiting or 0) - ours)
        replica.view.reported_ns = time.monotonic_ns()
