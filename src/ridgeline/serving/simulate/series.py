"""How a platform was over time: replicas, queues, caches, and what bound its engines.

Looked at in steps of virtual time that double as the run grows, so that a day takes no more memory
than a minute. Looking changes nothing: engines are brought to the present as for a report, and
sums since the begin are kept, so that a step's share is a difference and jumps are exact.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.policy.states import State
from ridgeline.serving.simulate.asked import Asked
from ridgeline.serving.simulate.bound import COUNTS, Meter, Terms, terms_of
from ridgeline.serving.simulate.front import Front
from ridgeline.serving.simulate.pace import FS_IN_NS
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.service import Service
from ridgeline.timeline import NS, Timeline

#: What is seen of a kind of replicas at an instant; then the sums since the begin: ready time of
#: all replicas, and what their meters counted, in femtoseconds.
SEEN = ("starting", "ready", "draining", "queued", "running", "waiting", "used", "blocks")
_MOST = 480
_MOST_BLOCKS = 4_000_000
_FIRST_NS = NS // 8
#: Behind everybody's reports.
_RANK = rank(Kind.REPORT, (1 << 32) - 1)


@dataclass(frozen=True, slots=True)
class Looks:
    """One kind of replicas: what was seen at each instant, and sums up to there."""

    at_s: NDArray[np.float64]
    seen: dict[str, NDArray[np.int64]]
    there_s: NDArray[np.float64]
    counts_s: dict[str, NDArray[np.float64]]

    @property
    def used(self) -> NDArray[np.float64]:
        """Blocks in use, of all there were."""
        return np.asarray(self.seen["used"] / np.maximum(self.seen["blocks"], 1))


class Series:
    """`joins`, `came`, `begin` and `end` are for the world; `looks` is what came of it.

    It `keeps_prompts` for an oracle, where no trace has them.
    """

    def __init__(self, *, keeps_prompts: bool = False) -> None:
        #: By number: whose model, how long, and its blocks; in the order in which they came.
        self.prompts: dict[int, tuple[str, int, Sequence[int]]] | None = None
        if keeps_prompts:
            self.prompts = {}
        self._blocks = 0
        self._rows: list[list[tuple[int, ...]]] = []
        self._at_ns: list[int] = []
        self._every_ns = _FIRST_NS
        self._services: Sequence[Service] = ()
        self._fronts: Sequence[Front] = ()
        self._timeline: Timeline
        self._terms: dict[str, Terms | None] = {}
        self._meters: dict[str, list[tuple[VirtualReplica, Meter]]] = {}

    def joins(self, replica: VirtualReplica) -> None:
        """There is one more: from now on its steps are counted."""
        model = replica.model
        if model.name not in self._terms:
            self._terms[model.name] = terms_of(model.engine.machine)
        meter = Meter(self._terms[model.name], replica.engine)
        replica.engine.meter = meter
        self._meters.setdefault(model.name, []).append((replica, meter))

    def came(self, asked: Asked) -> None:
        """A request has come; what its prompt is made of is kept, up to a size of all of them.

        Where there are more blocks than that none are.
        """
        if self.prompts is None or asked.number in self.prompts:
            return
        self._blocks += len(asked.blocks)
        if self._blocks > _MOST_BLOCKS:
            self.prompts = None
        elif asked.blocks:
            self.prompts[asked.number] = asked.model, asked.prompt_tokens, asked.blocks

    def begin(
        self, timeline: Timeline, services: Iterable[Service], fronts: Sequence[Front]
    ) -> None:
        """The simulation begins."""
        self._timeline, self._services, self._fronts = timeline, list(services), fronts
        self._look(None)

    def end(self) -> None:
        """It is over: once more."""
        if self._timeline.now_ns > self._at_ns[-1]:
            self._see()

    @property
    def kinds(self) -> list[str]:
        """Of replicas, by name."""
        return [service.model.name for service in self._services]

    def served(self, kind: str) -> str:
        """What clients call a kind."""
        return next(one.model.served for one in self._services if one.model.name == kind)

    def looks(self, kind: str) -> Looks:
        """What was seen of a kind."""
        place = self.kinds.index(kind)
        table = np.array([row[place] for row in self._rows], dtype=np.int64)
        seen = {name: table[:, index] for index, name in enumerate(SEEN)}
        sums = table[:, len(SEEN) :] / NS
        counts = {name: sums[:, index + 1] for index, name in enumerate(COUNTS)}
        return Looks(np.array(self._at_ns) / NS, seen, sums[:, 0], counts)

    def _look(self, _: Any) -> None:
        self._see()
        if len(self._rows) >= _MOST:
            del self._rows[1::2], self._at_ns[1::2]
            self._every_ns *= 2
        if len(self._timeline) or self._timeline.now_ns == 0:
            self._timeline.at(self._at_ns[-1] + self._every_ns, _RANK, self._look)

    def _see(self) -> None:
        self._at_ns.append(self._timeline.now_ns)
        told: set[str] = set()
        row = []
        for service in self._services:
            served = service.model.served
            queued = 0
            if served not in told:  # a queue is of all kinds that serve a name
                told.add(served)
                queued = sum(front.queued(served) for front in self._fronts)
            row.append((*self._seen(service, queued), *self._sums(service.model.name)))
        self._rows.append(row)

    def _seen(self, service: Service, queued: int) -> tuple[int, ...]:
        states = {State.STARTING: 0, State.READY: 0, State.DRAINING: 0}
        running = waiting = used = blocks = 0
        for replica in service.there:
            states[replica.state] += 1
            engine = replica.engine
            engine.sync()
            running += engine.running
            waiting += engine.waiting
            if replica.state is not State.STARTING:
                used += engine.batcher.book.used
                blocks += engine.batcher.book.blocks
        return (*states.values(), queued, running, waiting, used, blocks)

    def _sums(self, name: str) -> tuple[int, ...]:
        """Ready time of all replicas and their counts, in ns: of a century they fit 64 bits."""
        now_ns, there_ns = self._timeline.now_ns, 0
        counts = [0] * len(COUNTS)
        for replica, meter in self._meters.get(name, ()):
            if replica.ready_ns >= 0:
                there_ns += (now_ns if replica.gone_ns < 0 else replica.gone_ns) - replica.ready_ns
            for index, count in enumerate(meter.counts):
                counts[index] += count
        return (there_ns, *(count // FS_IN_NS for count in counts))
