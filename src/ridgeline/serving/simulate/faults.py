"""What goes wrong, and when: replicas that die, are slow or silent, and regions that are lost."""

from collections.abc import Iterable, Mapping

from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.pace import Pace
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.regions import Regions
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.service import Service
from ridgeline.serving.simulate.setup import Fault, Trouble
from ridgeline.timeline import NS, Timeline


class Faults:
    """Puts them all down; each strikes by itself."""

    def __init__(
        self,
        faults: Iterable[Fault],
        services: Mapping[str, Service],
        regions: Regions,
        timeline: Timeline,
        log: Log,
    ) -> None:
        self._services = services
        self._regions = regions
        self._timeline = timeline
        self._log = log
        for fault in faults:
            self._expect(fault)

    def _expect(self, fault: Fault) -> None:
        at_ns, turn = round(fault.at_s * NS), rank(Kind.FAULT, fault.number)
        self._timeline.at(at_ns, turn, self._strike, fault)
        if fault.trouble is not Trouble.DIES and fault.lasts_s:
            self._timeline.at(at_ns + round(fault.lasts_s * NS), turn, self._mend, fault)

    def _strike(self, fault: Fault) -> None:
        if fault.trouble is Trouble.LOST:
            self._lose(fault.region)
            return
        replica = self._target(fault)
        if replica is None:
            return
        service = self._services[fault.model]
        self._log.wrote(self._timeline.now_ns, "fault", replica.name, fault.trouble)
        match fault.trouble:
            case Trouble.DIES:
                service.die(replica)
            case Trouble.SLOW:
                replica.paced(Pace(replica.model.engine.machine, fault.factor))
            case Trouble.SILENT:
                service.silence(replica, silent=True)

    def _mend(self, fault: Fault) -> None:
        if fault.trouble is Trouble.LOST:
            self._find(fault.region)
            return
        replica = self._target(fault)
        if replica is None:
            return
        self._log.wrote(self._timeline.now_ns, "mended", replica.name, fault.trouble)
        if fault.trouble is Trouble.SLOW:
            replica.paced(Pace(replica.model.engine.machine))
        else:
            self._services[fault.model].silence(replica, silent=False)

    def _target(self, fault: Fault) -> VirtualReplica | None:
        """The replica that is meant; None where it is not there (any more)."""
        every = self._services[fault.model].every
        if fault.number < len(every) and every[fault.number].gone_ns < 0:
            return every[fault.number]
        return None

    def _lose(self, region: str) -> None:
        """First its gateways: nobody there sends anything elsewhere any more."""
        self._log.wrote(self._timeline.now_ns, "lost", region)
        for front in self._regions.of(region):
            front.lose()
        for service in self._of(region):
            service.lose()

    def _find(self, region: str) -> None:
        self._log.wrote(self._timeline.now_ns, "found", region)
        for front in self._regions.of(region):
            front.find()
        for service in self._of(region):
            service.find()

    def _of(self, region: str) -> list[Service]:
        return [one for one in self._services.values() if one.model.place.region == region]
