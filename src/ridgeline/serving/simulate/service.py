"""The replicas of one model in virtual time: as many as are wanted, none cut short.

As `control.deployment` keeps them: started in stages, drained before they stop, started anew when
they die. Reports of what they do come as late as the gateway's probes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ridgeline.serving.control.looks import look_of
from ridgeline.serving.policy.restart import restart
from ridgeline.serving.policy.scale import Look, Scaled, remembered
from ridgeline.serving.policy.states import State
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.devices import Claim, Devices
from ridgeline.serving.simulate.front import Front
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.setup import Gateway, Model
from ridgeline.timeline import NS, Timeline

#: Makes a replica with this number among those of a model.
Make = Callable[[int], VirtualReplica]


class Service:
    """`open`, `resize`, `look`, `ended`; `every` has all replicas there ever were."""

    def __init__(
        self,
        number: int,
        model: Model,
        make: Make,
        fronts: Sequence[Front],
        gateway: Gateway,
        timeline: Timeline,
        log: Log,
        chances: Chances,
        devices: Devices | None = None,
        before: "Service | None" = None,
    ) -> None:
        self.model = model
        self.every: list[VirtualReplica] = []
        self.scaled: list[tuple[int, Scaled, Look]] = []
        self._number = number
        self._make = make
        self._fronts = fronts
        self._gateway = gateway
        self._timeline = timeline
        self._log = log
        self._chances = chances
        self._devices = devices
        self._before = before
        self._claims: dict[int, Claim] = {}  # by replica that has devices, or waits for some
        self._is_lost = False
        self._places = 0  # replicas that serve, start, or wait to be started anew
        self._deaths = 0
        self._looks: list[Look] = []
        self._reporting: set[str] = set()
        self._reports: dict[int, tuple[int, int, int]] = {}  # by replica: running, waiting, when
        self._silent: set[int] = set()

    @property
    def size(self) -> int:
        """Replicas that serve or start; not those that leave."""
        return self._places

    @property
    def is_full(self) -> bool:
        """Whether there can be no more, here and in the kinds before: the next one's turn."""
        scaling = self.model.scaling
        full = scaling is None or self._places >= scaling.settings.most
        return full and (self._before is None or self._before.is_full)

    @property
    def has_room(self) -> bool:
        """Whether there are devices for one more."""
        return self._devices is None or self._devices.free >= self.model.place.devices

    @property
    def there(self) -> list[VirtualReplica]:
        """All that are not gone."""
        return [one for one in self.every if one.gone_ns < 0]

    def open(self) -> None:
        """The first replicas are there and ready as the simulation begins."""
        scaling = self.model.scaling
        first = self.model.replicas
        if scaling is not None:
            first = min(max(first, scaling.settings.least), scaling.settings.most)
        for _ in range(first):
            self._places += 1
            self._start(ready=True)
        if scaling is not None:
            self._expect_look()

    def resize(self, wanted: int) -> None:
        """From now on there should be so many; in a region that is lost, once it is back."""
        if self._is_lost:
            self._places = wanted
            return
        while self._places < wanted:
            self._places += 1
            self._start()
        staying = [one for one in self.there if one.state is not State.DRAINING]
        staying.sort(key=lambda one: (one.state is State.READY, -one.number))
        for replica in staying[: max(0, self._places - wanted)]:
            self._places -= 1
            self._leave(replica)

    def took(self, replica: VirtualReplica) -> None:
        """A request was sent there: from now on there is something to report."""
        if replica.name not in self._reporting:
            self._reporting.add(replica.name)
            every_ns = round(self._gateway.probe_every_s * NS)
            since_ns = self._timeline.now_ns - replica.ready_ns
            at_ns = replica.ready_ns + (since_ns // every_ns + 1) * every_ns
            self._timeline.at(at_ns, rank(Kind.REPORT, replica.number), self._report, replica)

    def emptied(self, replica: VirtualReplica) -> None:
        """A request has left it."""
        if replica.state is State.DRAINING and not replica.requests:
            self._gone(replica)

    def die(self, replica: VirtualReplica) -> None:
        """Its process ends; another one is started in its place, unless it was leaving."""
        if replica.began_ns < 0:
            return  # it waits for devices
        leaving = replica.state is State.DRAINING
        lived_s = (self._timeline.now_ns - replica.began_ns) / NS
        self._gone(replica)
        replica.die()
        if leaving:
            return
        decision = restart(self._deaths, lived_s)
        self._deaths = decision.deaths
        self._log.wrote(self._timeline.now_ns, "died", replica.name, decision.reason)
        at_ns = self._timeline.now_ns + round(decision.delay_s * NS)
        self._timeline.at(at_ns, rank(Kind.STAGE, replica.number), self._anew)

    def silence(self, replica: VirtualReplica, *, silent: bool) -> None:
        """It reports nothing of itself, or does again."""
        (self._silent.add if silent else self._silent.discard)(replica.number)

    def _anew(self, _: object) -> None:
        alive = sum(one.state is not State.DRAINING for one in self.there)
        if alive < self._places and not self._is_lost:
            self._start()

    def lose(self) -> None:
        """The region is gone, and all that was there."""
        self._is_lost = True
        for replica in self.there:
            self._gone(replica)
            replica.die()

    def find(self) -> None:
        """The region is back: all start anew."""
        self._is_lost = False
        for _ in range(self._places):
            self._start()

    def _start(self, *, ready: bool = False) -> None:
        """One more, as soon as there are devices for it."""
        replica = self._make(len(self.every))
        self.every.append(replica)
        for front in self._fronts:
            front.joined(replica)
        self._log.wrote(self._timeline.now_ns, "started", replica.name)
        begin = partial(self._ready if ready else self._begin, replica)
        if self._devices is None:
            begin()
            return
        place = self.model.place
        claim = self._devices.take(place.devices, begin)
        self._claims[replica.number] = claim
        if not claim.granted:
            self._log.wrote(self._timeline.now_ns, "pends", replica.name)

    def _begin(self, replica: VirtualReplica) -> None:
        """It will be ready once the gateway's probe finds it to be."""
        replica.began_ns = self._timeline.now_ns
        self._expect_reclaim(replica)
        every_ns = round(self._gateway.probe_starting_s * NS)
        early_ns = round(self.model.ready_early_s * NS)
        looks = max(1, -(-(round(self.model.starts_s * NS) - early_ns) // every_ns))
        at_ns = self._timeline.now_ns + looks * every_ns
        replica.works_ns = at_ns + early_ns
        self._timeline.at(at_ns, rank(Kind.STAGE, replica.number), self._up, replica)

    def _up(self, replica: VirtualReplica) -> None:
        if replica.gone_ns < 0 and replica.state is State.STARTING:
            self._deaths = 0
            self._ready(replica)

    def _ready(self, replica: VirtualReplica) -> None:
        replica.ready_ns = self._timeline.now_ns
        if replica.began_ns < 0:
            replica.began_ns = self._timeline.now_ns
            self._expect_reclaim(replica)
        self._log.wrote(self._timeline.now_ns, "ready", replica.name)
        self._now(replica, State.READY)

    def _expect_reclaim(self, replica: VirtualReplica) -> None:
        spot = self.model.place.spot
        if spot is None or not spot.per_hour:
            return
        hours = self._chances.exponential("reclaim", replica.name) / spot.per_hour
        at_ns = self._timeline.now_ns + round(hours * 3600 * NS)
        self._timeline.at(at_ns, rank(Kind.FAULT, replica.number), self._reclaim, replica)

    def _reclaim(self, replica: VirtualReplica) -> None:
        """Its owner wants its machine back: another one starts, and it ends what it can."""
        spot = self.model.place.spot
        assert spot is not None, "reclaimed"
        if replica.gone_ns >= 0:
            return
        self._log.wrote(self._timeline.now_ns, "reclaimed", replica.name)
        if replica.state is not State.DRAINING:
            self._start()
        self._leave(replica, spot.notice_s)

    def _leave(self, replica: VirtualReplica, within_s: float | None = None) -> None:
        self._log.wrote(self._timeline.now_ns, "drains", replica.name)
        self._now(replica, State.DRAINING)
        if not replica.requests:
            self._gone(replica)
            return
        if within_s is None:
            within_s = self.model.drain_s
        if not within_s:
            self.die(replica)
            return
        at_ns = self._timeline.now_ns + round(within_s * NS)
        self._timeline.at(at_ns, rank(Kind.FAULT, replica.number), self._too_late, replica)

    def _too_late(self, replica: VirtualReplica) -> None:
        if replica.gone_ns < 0:
            self.die(replica)

    def _gone(self, replica: VirtualReplica) -> None:
        replica.gone_ns = self._timeline.now_ns
        if not replica.requests:  # what a step still does for clients who left is cut short
            replica.engine.die()
        replica.state = State.STOPPED
        self._log.wrote(self._timeline.now_ns, "stopped", replica.name)
        for front in self._fronts:
            front.left(replica)
        claim = self._claims.pop(replica.number, None)
        if claim is not None and self._devices is not None:
            self._devices.give(claim)

    def _now(self, replica: VirtualReplica, state: State) -> None:
        replica.state = state
        for front in self._fronts:
            front.is_now(replica, state)

    # What is seen of them.

    def _report(self, replica: VirtualReplica) -> None:
        self._reporting.discard(replica.name)
        if replica.gone_ns >= 0:
            return
        if replica.number not in self._silent:
            replica.engine.sync()
            running, waiting = replica.engine.running, replica.engine.waiting
            self._reports[replica.number] = running, waiting, self._timeline.now_ns
            for front in self._fronts:
                front.reported(replica, running + waiting, replica.engine.batcher.book.usage)
        if replica.requests or replica.number in self._silent:
            self.took(replica)

    def _expect_look(self) -> None:
        scaling = self.model.scaling
        assert scaling is not None, "scaled"
        at_ns = self._timeline.now_ns + round(scaling.every_s * NS)
        self._timeline.at(at_ns, rank(Kind.LOOK, self._number), self._look)

    def _look(self, _: object) -> None:
        """One round of the autoscaler."""
        scaling, now_ns = self.model.scaling, self._timeline.now_ns
        assert scaling is not None, "scaled"
        now = look_of(self._status(), self.model.name, self._places, now_ns)
        rule, settings = scaling.rule, scaling.settings
        self._looks = remembered([*self._looks, now], settings, now_ns, rule.memory_s)
        if self._is_lost:
            self._expect_look()
            return
        decided = rule.decide(self._looks, settings, scaling.floor(now_ns / NS))
        if decided.replicas != self._places:
            self._log.wrote(now_ns, "scaled", self.model.name, decided.replicas, decided.reason)
            self.scaled.append((now_ns, decided, now))
            self.resize(decided.replicas)
        self._expect_look()

    def _status(self) -> dict[str, Any]:
        """What a gateway's status says, of this model."""
        name, served = self.model.name, self.model.served
        replicas = []
        for one in self.there:
            views = [view for front in self._fronts if (view := front.view(served, one.name))]
            running, waiting, at_ns = self._reports.get(one.number, (0, 0, one.ready_ns))
            # Who has nothing to report is not asked here, and would say the same again.
            silent_ns = self._timeline.now_ns - at_ns if one.number in self._silent else 0
            replicas.append(
                {
                    "state": one.state,
                    "models": [name],
                    "in_flight": sum(view.running for view in views),
                    "running": running,
                    "waiting": waiting,
                    "reported_s_ago": silent_ns / NS,
                }
            )
        queued = held = 0
        if self._before is None or self._before.is_full:
            held = sum(front.held(served) for front in self._fronts)
            queued = sum(front.queued(served) for front in self._fronts) - held
        return {
            "replicas": replicas,
            "queues": [{"model": name, "queued": queued}],
            "held": {name: held},
        }
