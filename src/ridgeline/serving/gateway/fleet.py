"""The replicas behind a gateway: who is there, in which state, with which load.

The live shell around `policy.route` and `policy.health`: it looks, asks them, keeps what they
say and acts. One task for each replica looks at it; requests report what they meet (`saw`).
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import Any

import msgspec
from aiohttp import ClientSession

from ridgeline.errors import SpecError
from ridgeline.serving.gateway.config import ANY, GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.live_replica import Dispatch, LiveReplica, Wanted
from ridgeline.serving.gateway.probe import Probe
from ridgeline.serving.gateway.watch import Watch
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.health import Sign, judge
from ridgeline.serving.policy.prefill_rate import PeakRate
from ridgeline.serving.policy.prefix import PrefixIndex
from ridgeline.serving.policy.route import NoRoute, Replica, Request, View, route
from ridgeline.serving.policy.split import Split, version_for
from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import Saturation

GONE_S = 300  # how long a replica that left may still be asked what it did


class Fleet:
    """All replicas. `add`, `remove` and `drain` work at any time, also before `start`."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._replicas: dict[str, LiveReplica] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._session: ClientSession | None = None
        self._last: dict[str, str] = {}  # for each model, who got the last request
        self._index = PrefixIndex()
        self._peaks: dict[str, PeakRate] = {}
        self._appeared: dict[str, asyncio.Event] = {}  # for each model, that somebody is ready
        self._held: Counter[str] = Counter()  # for each model, who waits for that
        self._starts_s: dict[str, float] = {}  # models that start when asked for, and how long
        self._splits: dict[str, Split] = {}
        #: Called with a model whose free slots have changed.
        self.on_change: Callable[[str], None] = lambda _: None
        #: Called with what a replica does: its id, state, requests there, and the time (Unix, ns).
        self.on_doing: Callable[[str, State, int, int], None] = lambda *_: None
        self._gone: list[tuple[int, ReplicaAddress]] = []

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
        if replica.idle.is_set():
            self._judge(replica, Sign.EMPTIED)
        self._judge(replica, Sign.STOP)
        if self._replicas.get(name) is replica:
            del self._replicas[name]
            self._gone = [*self._gone[-63:], (time.monotonic_ns(), replica.address)]
            self._index.remove(name)
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
        for name in self._starts_s:
            asleep = {"id": name, "object": "model", "created": 0, "owned_by": "ridgeline"}
            union.setdefault(name, {**asleep, "replicas": []})
        return [union[name] for name in sorted(union)]

    def knows(self, model: str) -> bool:
        """Whether any replica serves the model, in whatever state it is, or will when asked."""
        return model in self._starts_s or any(
            model in (one.view.models or ()) for one in self._replicas.values()
        )

    def expect(self, model: str, start_s: float | None) -> None:
        """Somebody starts a replica of the model when it is asked for, within about `start_s`.

        Until then requests are held. None: nobody does any more.
        """
        if start_s is None:
            self._starts_s.pop(model, None)
        else:
            self._starts_s[model] = start_s

    @property
    def held(self) -> dict[str, int]:
        """For each model the requests that wait for a replica to be ready."""
        return {model: count for model, count in self._held.items() if count}

    def set_split(self, model: str, split: Split | None) -> None:
        """From now on callers get versions of a model by this split; None: whatever is ready."""
        if split is None:
            self._splits.pop(model, None)
        else:
            self._splits[model] = split

    def settings_changed(self) -> None:
        """Models have other settings: replicas are told their slots, and queues look again."""
        for replica in self.replicas:
            name = next(iter(sorted(replica.names)), ANY)
            replica.view.slots = self._config.model(name).slots
            for model in replica.view.models or ():
                self.on_change(model)

    def slots(self, model: str) -> int:
        """Requests for a model that this worker may have under way at once: its share of all."""
        ready = sum(
            one.view.state is State.READY and model in (one.view.models or ())
            for one in self._replicas.values()
        )
        return ready * max(1, -(-self._config.model(model).slots // self._config.workers))

    async def until_served(self, model: str) -> None:
        """Wait until a replica is ready for a model that somebody serves, but nobody now.

        So a rolling update fails no requests, and one may be started when the first request comes.
        Raises ApiError 503 where it takes too long, or too many wait.
        """
        if self.slots(model) or not self.knows(model):
            return
        if self._held[model] >= self._config.most_held:
            raise self.unready(model, f"{self._held[model]} requests wait for a replica")
        start_s = self._starts_s.get(model)
        within_s = self._config.hold_s if start_s is None else self._config.hold_s + 2 * start_s
        appeared = self._appeared.setdefault(model, asyncio.Event())
        appeared.clear()
        self._held[model] += 1
        try:
            await asyncio.wait_for(appeared.wait(), within_s)
        except TimeoutError:
            pass
        finally:
            self._held[model] -= 1
        if not self.slots(model):
            raise self.unready(model, f"no replica became ready within {within_s:g} s")

    def warm_tokens(self, wanted: Wanted) -> dict[str, int]:
        """How many tokens of the prompt each replica is believed to have cached."""
        blocks = wanted.blocks
        return self._index.warm_tokens(blocks.hashes, wanted.input_tokens, blocks.length)

    def context(self, model: str) -> int | None:
        """The longest sequence that all its replicas take, in tokens; None where none says."""
        said = [
            length
            for one in self._replicas.values()
            if isinstance(length := one.entries.get(model, {}).get("max_model_len"), int)
        ]
        return min(said, default=None)

    def owner(self, model: str) -> str:
        """What engine its replicas run (`owned_by`), where at least two are ready and all agree."""
        ready = [one for one in self._replicas.values() if one.view.state is State.READY]
        owners = [one.entries[model].get("owned_by") for one in ready if model in one.entries]
        return str(owners[0]) if len(owners) > 1 and len(set(owners)) == 1 else ""

    def keeps_log(self, model: str) -> bool:
        """Whether all its replicas are ours: they write down what each request used."""
        having = [one.entries[model] for one in self._replicas.values() if model in one.entries]
        return all(one.get("owned_by") == "ridgeline" for one in having)

    @property
    def may_come(self) -> bool:
        """Whether somebody starts who has not said yet what it serves."""
        starting = (State.STARTING, State.LOADING)
        return any(
            one.view.models is None and one.view.state in starting
            for one in self._replicas.values()
        )

    def choose(self, wanted: Wanted, tried: frozenset[str]) -> Dispatch | None:
        """The replica for a request, already counted there; None where all had their chance.

        Raises ApiError 503 where nobody serves the model now.
        """
        model, now_ns = wanted.model, time.monotonic_ns()
        view = View(
            self._config.model(model).rule,
            Request(
                model,
                tried,
                wanted.input_tokens,
                self.warm_tokens(wanted),
                self._index.continues(wanted.blocks.hashes),
                wanted.session,
                self._adapter(model),
                chance=random.getrandbits(64),
            ),
            self._candidates(wanted, tried),
            self._last.get(model, ""),
            now_ns,
            self._saturation(model),
        )
        answer = route(view)
        if isinstance(answer, NoRoute):
            self._refuse(model, answer)
            return None
        detail = msgspec.json.encode({"view": view, "route": answer})
        self._last[model] = answer.replica
        chosen = self._replicas[answer.replica]
        others = chosen.view.running
        self._index.record(chosen.id, wanted.blocks.hashes)
        sent = chosen.took(answer.uncached_tokens, wanted.input_tokens)
        self.does(chosen)
        return Dispatch(self, chosen, answer, sent, detail, now_ns, others)

    def _candidates(self, wanted: Wanted, tried: frozenset[str]) -> list[Replica]:
        """Who may be chosen: those of the caller's version, or all where none of them is left."""
        every = [replica.view for replica in self._replicas.values()]
        split = self._splits.get(wanted.model)
        if split is None:
            return every
        version = version_for(split, wanted.caller)
        having = [one.view for one in self._replicas.values() if one.address.version == version]
        left = (view for view in having if view.id not in tried)
        return having if any(view.state is State.READY for view in left) else every

    def _adapter(self, model: str) -> str | None:
        """The model's own name, where it is an adapter: it goes where it is in memory."""
        entries = (one.entries.get(model, {}) for one in self._replicas.values())
        return model if any(entry.get("parent") for entry in entries) else None

    def prefilled(self, model: str, tokens: int, took_ns: int) -> None:
        """A prompt that had its replica for itself took so long to its first token."""
        self._peaks[model] = self._peaks.get(model, PeakRate()).saw(tokens, took_ns)

    def addresses(self, model: str) -> list[ReplicaAddress]:
        """Where the model is served, or was served in the last minutes."""
        since_ns = time.monotonic_ns() - GONE_S * 1_000_000_000
        gone = [address for at_ns, address in self._gone if at_ns >= since_ns]
        there = [
            one.address for one in self._replicas.values() if model in (one.view.models or (model,))
        ]
        known = {address.id for address in there}
        return there + [one for one in gone if one.model in (model, ANY) and one.id not in known]

    def freed(self, replica: LiveReplica) -> None:
        """A request has left a replica."""
        self.does(replica)
        for model in replica.view.models or ():
            self.on_change(model)

    def does(self, replica: LiveReplica) -> None:
        """Its minutes are written down: busy, idle, loading or draining."""
        view = replica.view
        self.on_doing(replica.id, view.state, view.running + view.others, time.time_ns())

    def _saturation(self, model: str) -> Saturation:
        """How much more prefill a warm replica may have than a cold one: this worker's share."""
        wait_s, peak = self._config.model(model).wait_s, self._peaks.get(model, PeakRate())
        source = f"{peak.source} for {wait_s:g} s, of {self._config.workers} workers"
        return Saturation(peak.tokens_per_s * wait_s / self._config.workers, source)

    def saw(self, replica: LiveReplica, sign: Sign) -> None:
        """A request met this on its way."""
        if sign in (Sign.REFUSED, Sign.FAILED):
            replica.failures += 1
        self._judge(replica, sign)

    def _refuse(self, model: str, answer: NoRoute) -> None:
        if answer.kind == "unknown":
            # It was there when the request came, so a list of all models would say too much.
            raise self.unready(model, "no replica serves it any more")
        if answer.kind == "unready":
            raise self.unready(model, answer.reason)

    def unready(self, model: str, reason: str) -> ApiError:
        """The 503 for a model that nobody can serve just now; one that starts takes its time."""
        again_s = self._starts_s.get(model, self._config.probe_every_s)
        return ApiError(
            503,
            f"The model `{model}` is not ready: {reason}.",
            code="model_not_ready",
            headers={"Retry-After": str(max(1, ceil(again_s)))},
        )

    def _judge(self, replica: LiveReplica, sign: Sign) -> None:
        replica.health = judge(replica.health, sign)
        before, replica.view.state = replica.view.state, replica.health.state
        self.does(replica)
        if replica.view.state is before:
            return
        if replica.view.state in (State.STARTING, State.LOADING) and before is not State.STARTING:
            replica.stages, replica.stage_ns = {}, time.monotonic_ns()  # it begins anew
        if replica.view.state is not State.READY:
            replica.ready.clear()
            return
        replica.ready.set()
        self._index.remove(replica.id)  # what it had in its cache, it has no more
        for model in replica.view.models or ():
            if model in self._appeared:
                self._appeared[model].set()
            self.on_change(model)

    def _watch(self, replica: LiveReplica) -> None:
        assert self._session is not None, "watched only once started"
        probe = Probe(self._session, replica.address, self._config.timeouts.probe_s)
        watch = Watch(self._config, replica, probe, self._judge, self._index.resize)
        self._watches[replica.id] = asyncio.create_task(watch.run(), name=f"watch {replica.id}")
