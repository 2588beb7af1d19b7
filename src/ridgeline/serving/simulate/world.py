"""A whole serving platform in virtual time: clients, gateway workers, replicas, and faults.

`simulate(serving, clients)` runs it to its end. Whatever decides is the live system's own code; the
rooms beside this one are its shells (`front` the gateway's, `service` the controllers', `replica`
and `virtual_engine` the engine's), with a `Timeline` in place of clocks and sockets.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Protocol

from ridgeline.physics.straight_steps import FS
from ridgeline.serving.policy.split import Split
from ridgeline.serving.simulate.accounts import Accounts
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.changes import Changing, changing
from ridgeline.serving.simulate.checks import check, kinds_of
from ridgeline.serving.simulate.devices import Devices
from ridgeline.serving.simulate.faults import Faults
from ridgeline.serving.simulate.front import Front
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.outcome import Outcome, ReplicaTime, Rows
from ridgeline.serving.simulate.pace import Pace
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.regions import Regions
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.service import Service
from ridgeline.serving.simulate.setup import Change, Model, Serving
from ridgeline.timeline import NS, Timeline


class Clients(Protocol):
    """Who asks: `begin` puts down the first requests, the rest comes by itself."""

    def begin(self, world: "World") -> None:
        """The simulation begins."""


class World:
    """`arrive` and `leave` are for clients; `run` is the simulation."""

    def __init__(
        self, serving: Serving, log: Log | None = None, series: Series | None = None
    ) -> None:
        self.serving = serving
        self.timeline = Timeline()
        self.chances = Chances(serving.seed)
        self.log = log or Log()
        self.rows = Rows()
        self._series = series
        self.open = 0  # requests that have come and not ended
        self.expected = 0  # clients that may still ask
        check(serving)
        self._kinds = kinds_of(serving.models)
        self._accounts = Accounts(serving.tenants, {name: k[0] for name, k in self._kinds.items()})
        self._fronts: list[Front] = []
        for region in serving.regions:
            for _ in range(serving.gateway.workers):
                self._fronts.append(self._front(len(self._fronts), region.name))
        self._regions = Regions(
            serving.regions, serving.tenants, self._fronts, self.timeline, self.chances,
            self._may_come,
        )  # fmt: skip
        self._paces = {model.name: Pace(model.engine.machine) for model in serving.models}
        self._replicas: dict[str, VirtualReplica] = {}
        self._devices = {name: Devices(count) for name, count in serving.pools.items()}
        self._services: dict[str, Service] = {}
        for model in serving.models:
            self._services[model.name] = self._service(model)
        self.changed: list[tuple[float, str, str]] = []
        self._changes: dict[str, Changing] = {}
        for change in serving.changes:
            self._expect(change)
        Faults(serving.faults, self._services, self._regions, self.timeline, self.log)

    def run(self, clients: Clients) -> Outcome:
        """From the first request to the end of the last one."""
        for service in self._services.values():
            service.open()
        if self._series is not None:
            self._series.begin(self.timeline, self._services.values(), self._fronts)
        clients.begin(self)
        if self._is_over:
            return self._outcome()
        self.timeline.run()
        return self._outcome()

    def at(self, at_ns: int, number: int, act: Callable[[Asked], None], asked: Asked) -> None:
        """A client does something then; of one instant the lower request number goes first.

        Where the turn of that is over, it takes him a nanosecond.
        """
        timeline, turn = self.timeline, rank(Kind.ARRIVAL, number)
        if at_ns == timeline.now_ns and turn < timeline.rank:
            at_ns += 1
        timeline.at(at_ns, turn, act, asked)

    def arrive(self, asked: Asked) -> None:
        """A request comes to the gateway, now."""
        now_ns = self.timeline.now_ns
        if asked.at_ns < 0:  # else it comes again
            asked.at_ns = now_ns
        self.open += 1
        model = asked.model
        if (adapters := self.model(model).engine.adapters) is not None:
            adapters.dress(asked, self.chances)
        if self._series is not None:
            self._series.came(asked)
        self.log.wrote(
            now_ns, "asked", asked.id, model, asked.prompt_tokens, asked.output_tokens,
            asked.tenant, asked.session,
        )  # fmt: skip
        self._regions.send(asked)

    def leave(self, asked: Asked, reason: str) -> None:
        """Its client wants no more of it."""
        if asked.end is not End.OPEN:
            return
        front = self._fronts[asked.worker]
        if asked.travels:
            asked.end, asked.reason, asked.done_ns = End.LEFT, reason, self.timeline.now_ns
            self._over(asked)
            return
        if asked.sent is None:
            front.gives_up(asked, End.LEFT, reason)
            return
        self._replicas[asked.replica].drop(asked)
        asked.end, asked.reason, asked.done_ns = End.LEFT, reason, self.timeline.now_ns
        front.ended(asked, asked.said)
        self._over(asked)
        self._emptied(asked)

    def ended(self, asked: Asked) -> None:
        """A request has ended; whoever is its client says so here, after what he does about it."""
        self.open -= 1
        self.rows.add(asked)
        self.log.wrote(
            self.timeline.now_ns, "ended", asked.id, asked.end.name, asked.replica, asked.first_ns,
            asked.done_ns,
        )  # fmt: skip
        if self._is_over:
            self.timeline.stop()

    def comes_again(self, asked: Asked) -> None:
        """It was refused or its client left, and it will be asked again."""
        self.open -= 1
        self.expected += 1
        self.log.wrote(self.timeline.now_ns, "refused", asked.id, asked.end.name)

    def expire(self, at_ns: int, asked: Asked, act: Callable[[Asked], None]) -> None:
        """A client's patience ends then, if its request has not ended before."""

        def act_if_open(_: None) -> None:
            if asked.end is End.OPEN:
                act(asked)

        self.timeline.at(at_ns, rank(Kind.EXPIRY, asked.number), act_if_open)

    def model(self, name: str) -> Model:
        """What is simulated under this name."""
        return self._kinds[name][0]

    @property
    def _is_over(self) -> bool:
        return not self.open and not self.expected

    def _front(self, number: int, region: str) -> Front:
        return Front(
            number, self.timeline, self.serving.gateway, self._kinds, self._accounts, self.chances,
            region,
        )  # fmt: skip

    def _service(self, model: Model) -> Service:
        place, alike = model.place, self._kinds[model.served]
        before = [
            one
            for one in alike[: alike.index(model)]
            if one.place.region == place.region and one.role is model.role
        ]
        return Service(
            len(self._services),
            model,
            partial(self._make, model),
            [front for front in self._fronts if front.region == place.region],
            self.serving.gateway,
            self.timeline,
            self.log,
            self.chances,
            self._devices.get(place.pool),
            self._services[before[-1].name] if before else None,
        )

    def _may_come(self, model: str, region: str) -> bool:
        """Whether a replica of it is there or will be."""
        services = (self._services[kind.name] for kind in self._kinds[model])
        return any(
            one.size > 0 or one.model.scaling is not None
            for one in services
            if one.model.place.region == region
        )

    def _expect(self, change: Change) -> None:
        served = self._services[change.old].model.served
        number = len(self._services) + len(self._changes)

        def route(split: Split | None) -> None:
            for front in self._fronts:
                front.set_split(served, split)

        self._changes[served] = changing(
            number, change, self._services, route, self.timeline, self._told
        )

    def _told(self, kind: str, said: str) -> None:
        self.log.wrote(self.timeline.now_ns, "changes", kind, said)
        self.changed.append((self.timeline.now_ns / NS, kind, said))

    def _make(self, model: Model, number: int) -> VirtualReplica:
        name = f"{model.name}-{number}"
        replica = VirtualReplica(
            len(self._replicas), name, model, self._paces[model.name], self.timeline, self.log,
            prefilled=self._prefilled, ended=self._answered, lost=self._lost, took=self._took,
            hands_over=self._hand_over, chances=self.chances,
            jumps=self.serving.jumps, gaps=self.serving.gaps,
        )  # fmt: skip
        self._replicas[name] = replica
        if self._series is not None:
            self._series.joins(replica)
        return replica

    # What replicas tell.

    def _took(self, replica: VirtualReplica) -> None:
        self._services[replica.model.name].took(replica)

    def _prefilled(self, asked: Asked) -> None:
        self._fronts[asked.worker].prefilled(asked)

    def _hand_over(self, asked: Asked) -> None:
        """Its prompt is computed: its cache goes to where it is decoded."""
        replica = self._replicas[asked.replica]
        target = self._fronts[asked.worker].hand_over(asked)
        if target is None:
            self._lost(asked)
        else:
            target.take(asked, replica.sends(asked))
        self._services[replica.model.name].emptied(replica)

    def _answered(self, asked: Asked) -> None:
        self._fronts[asked.worker].ended(asked, asked.said)
        self._over(asked)
        self._emptied(asked)

    def _lost(self, asked: Asked) -> None:
        if (change := self._changes.get(asked.model)) is not None:
            change.failed(self._replicas[asked.replica].model.name)
        if not self._fronts[asked.worker].broke(asked):
            asked.end, asked.done_ns = End.BROKEN, self.timeline.now_ns
            asked.reason = f"{asked.replica} died"
            self._over(asked)

    def _over(self, asked: Asked) -> None:
        if (change := self._changes.get(asked.model)) is not None:
            change.saw(asked)
        asked.client.ended(asked)

    def _emptied(self, asked: Asked) -> None:
        replica = self._replicas[asked.replica]
        self._services[replica.model.name].emptied(replica)

    # What came out.

    def _outcome(self) -> Outcome:
        now_ns = self.timeline.now_ns
        if self._series is not None:
            self._series.end()
        every = [one for service in self._services.values() for one in service.every]
        scaled = [
            (at_ns / NS, name, decided.replicas, decided.reason)
            for name, service in self._services.items()
            for at_ns, decided, _ in service.scaled
        ]
        return Outcome(
            self.rows.columns(),
            self.rows.names,
            [_time(one, now_ns) for one in every],
            self._spent(),
            sorted(scaled),
            now_ns / NS,
            self.log.events,
            self.log.digest,
            changed=self.changed,
            series=self._series,
        )

    def _spent(self) -> Mapping[str, Decimal]:
        return dict(self._accounts.spent_usd)

    def check(self) -> None:
        """Assert that nothing is left over: no request, no reservation, no block."""
        assert not self.open, f"{self.open} requests have not ended"
        assert not self._accounts.open, f"{self._accounts.open} reservations are open"
        for name, replica in self._replicas.items():
            assert not replica.requests, f"{name} has {replica.requests} requests"
            replica.engine.batcher.book.check()
            assert not replica.engine.batcher.book.used, f"{name} holds blocks"
            if replica.engine.lobby is not None:
                replica.engine.lobby.check()


def simulate(
    serving: Serving, clients: Clients, log: Log | None = None, series: Series | None = None
) -> Outcome:
    """Run it to its end; every invariant is checked there."""
    world = World(serving, log, series)
    outcome = world.run(clients)
    world.check()
    return outcome


def _time(replica: VirtualReplica, now_ns: int) -> ReplicaTime:
    ends_ns = replica.gone_ns if replica.gone_ns >= 0 else now_ns
    began_ns = replica.began_ns if replica.began_ns >= 0 else ends_ns
    ready_ns = replica.ready_ns if replica.ready_ns >= 0 else ends_ns
    hours = Decimal(ends_ns - began_ns) / (3600 * NS)
    return ReplicaTime(
        replica.name,
        replica.model.name,
        began_ns / NS,
        (ends_ns - began_ns) / NS,
        (ready_ns - began_ns) / NS,
        replica.engine.busy_fs / FS,
        replica.engine.steps,
        replica.engine.preemptions,
        (hours * replica.model.usd_per_hour).quantize(Decimal("1e-9")),
    )
