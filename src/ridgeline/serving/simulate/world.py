"""A whole serving platform in virtual time: clients, gateway workers, replicas, and faults.

`simulate(serving, clients)` runs it to its end. Whatever decides is the live system's own code; the
rooms beside this one are its shells (`front` the gateway's, `service` the controllers', `replica`
and `virtual_engine` the engine's), with a `Timeline` in place of clocks and sockets.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Protocol

from ridgeline.errors import SpecError
from ridgeline.physics.straight_steps import FS
from ridgeline.serving.simulate.accounts import Accounts
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.front import Front
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.outcome import Outcome, ReplicaTime, Rows
from ridgeline.serving.simulate.pace import Pace
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.service import Service
from ridgeline.serving.simulate.setup import Fault, Model, Serving, Trouble
from ridgeline.timeline import NS, Timeline


class Clients(Protocol):
    """Who asks: `begin` puts down the first requests, the rest comes by itself."""

    def begin(self, world: "World") -> None:
        """The simulation begins."""


class World:
    """`arrive` and `leave` are for clients; `run` is the simulation."""

    def __init__(self, serving: Serving, log: Log | None = None) -> None:
        self.serving = serving
        self.timeline = Timeline()
        self.chances = Chances(serving.seed)
        self.log = log or Log()
        self.rows = Rows()
        self.open = 0  # requests that have come and not ended
        self.expected = 0  # clients that may still ask
        self._models = {model.name: model for model in serving.models}
        self._accounts = Accounts(serving.tenants, self._models)
        gateway = serving.gateway
        self._fronts = [
            Front(n, self.timeline, gateway, self._models, self._accounts, self.chances)
            for n in range(gateway.workers)
        ]
        self._paces = {model.name: Pace(model.engine.machine) for model in serving.models}
        self._replicas: dict[str, VirtualReplica] = {}
        self._services = {
            model.name: Service(
                number, model, partial(self._make, model), self._fronts, gateway, self.timeline,
                self.log,
            )
            for number, model in enumerate(serving.models)
        }  # fmt: skip
        for fault in serving.faults:
            self._expect(fault)

    def run(self, clients: Clients) -> Outcome:
        """From the first request to the end of the last one."""
        for service in self._services.values():
            service.open()
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
        self.log.wrote(now_ns, "asked", asked.id, model, asked.prompt_tokens, asked.output_tokens)
        service = self._services[model]
        may_come = service.size > 0 or service.model.scaling is not None
        self._front_of(asked).ask(asked, may_come=may_come)

    def leave(self, asked: Asked, reason: str) -> None:
        """Its client wants no more of it."""
        if asked.end is not End.OPEN:
            return
        front = self._fronts[asked.worker]
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
        """It was refused, and will be asked again."""
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
        return self._models[name]

    @property
    def _is_over(self) -> bool:
        return not self.open and not self.expected

    def _front_of(self, asked: Asked) -> Front:
        if len(self._fronts) == 1:
            return self._fronts[0]
        return self._fronts[self.chances.bits("worker", asked.number) % len(self._fronts)]

    def _make(self, model: Model, number: int) -> VirtualReplica:
        name = f"{model.name}-{number}"
        replica = VirtualReplica(
            len(self._replicas), name, model, self._paces[model.name], self.timeline, self.log,
            prefilled=self._prefilled, ended=self._answered, lost=self._lost, took=self._took,
            jumps=self.serving.jumps, gaps=self.serving.gaps,
        )  # fmt: skip
        self._replicas[name] = replica
        return replica

    # What replicas tell.

    def _took(self, replica: VirtualReplica) -> None:
        self._services[replica.model.name].took(replica)

    def _prefilled(self, asked: Asked) -> None:
        self._fronts[asked.worker].prefilled(asked)

    def _answered(self, asked: Asked) -> None:
        self._fronts[asked.worker].ended(asked, asked.said)
        self._over(asked)
        self._emptied(asked)

    def _lost(self, asked: Asked) -> None:
        if not self._fronts[asked.worker].broke(asked):
            asked.end, asked.done_ns = End.BROKEN, self.timeline.now_ns
            asked.reason = f"{asked.replica} died"
            self._over(asked)

    def _over(self, asked: Asked) -> None:
        asked.client.ended(asked)

    def _emptied(self, asked: Asked) -> None:
        self._services[asked.model].emptied(self._replicas[asked.replica])

    # What goes wrong.

    def _expect(self, fault: Fault) -> None:
        if fault.model not in self._models:
            raise SpecError(
                f"a fault is of the model {fault.model!r}, which is not served",
                where="faults",
                remedy=f"one of: {', '.join(self._models)}",
            )
        at_ns = round(fault.at_s * NS)
        self.timeline.at(at_ns, rank(Kind.FAULT, fault.number), self._strike, fault)
        if fault.trouble is not Trouble.DIES and fault.lasts_s:
            at_ns += round(fault.lasts_s * NS)
            self.timeline.at(at_ns, rank(Kind.FAULT, fault.number), self._mend, fault)

    def _strike(self, fault: Fault) -> None:
        service = self._services[fault.model]
        replica = self._target(fault)
        if replica is None:
            return
        self.log.wrote(self.timeline.now_ns, "fault", replica.name, fault.trouble)
        match fault.trouble:
            case Trouble.DIES:
                service.die(replica)
            case Trouble.SLOW:
                replica.engine.sync()
                replica.engine.pace = Pace(replica.model.engine.machine, fault.factor)
            case Trouble.SILENT:
                service.silence(replica, silent=True)

    def _mend(self, fault: Fault) -> None:
        replica = self._target(fault)
        if replica is None:
            return
        self.log.wrote(self.timeline.now_ns, "mended", replica.name, fault.trouble)
        if fault.trouble is Trouble.SLOW:
            replica.engine.sync()
            replica.engine.pace = self._paces[fault.model]
        else:
            self._services[fault.model].silence(replica, silent=False)

    def _target(self, fault: Fault) -> VirtualReplica | None:
        """The replica that is meant; None where it is not there (any more)."""
        every = self._services[fault.model].every
        if fault.number < len(every) and every[fault.number].gone_ns < 0:
            return every[fault.number]
        return None

    # What came out.

    def _outcome(self) -> Outcome:
        now_ns = self.timeline.now_ns
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


def simulate(serving: Serving, clients: Clients, log: Log | None = None) -> Outcome:
    """Run it to its end; every invariant is checked there."""
    world = World(serving, log)
    outcome = world.run(clients)
    world.check()
    return outcome


def _time(replica: VirtualReplica, now_ns: int) -> ReplicaTime:
    ends_ns = replica.gone_ns if replica.gone_ns >= 0 else now_ns
    ready_ns = replica.ready_ns if replica.ready_ns >= 0 else ends_ns
    there_s = (ends_ns - replica.began_ns) / NS
    hours = Decimal(ends_ns - replica.began_ns) / (3600 * NS)
    return ReplicaTime(
        replica.name,
        replica.model.name,
        there_s,
        (ready_ns - replica.began_ns) / NS,
        replica.engine.busy_fs / FS,
        replica.engine.steps,
        replica.engine.preemptions,
        (hours * replica.model.usd_per_hour).quantize(Decimal("1e-9")),
    )
