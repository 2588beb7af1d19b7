"""Who starts next: classes over tenants over entries. A pure state machine.

`add` and `leave` change the queue; `pick` starts one, with the reason; `said`, `corrected` and
`end` tell of those that run. The live line and the simulator call the same code.

One pick asks the classes that have work in this order, and takes the first tenant in turn (`vtc`)
whose head fits the free slots:
1. classes of which nothing was served for so long that they have risen above all;
2. classes that hold fewer slots than their floor;
3. the others, a class that has risen before the class it has risen to.

An entry that needs more slots than are free lets others pass for `promotion_s` of its class. From
then on what frees up is kept for it, so it waits for what runs now and for no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ridgeline.serving.policy.classes import CLASSES, NS, Classes, PriorityClass
from ridgeline.serving.policy.vtc import Counters, Entry, Flow, Waiting


@dataclass(frozen=True, slots=True)
class Pick:
    """An entry starts now and holds `slots` until its end."""

    entry: Entry
    slots: int
    waited_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Nobody:
    """Nobody starts now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ahead:
    """Tokens that start before a new entry, with its own, and the share of slots of its class.

    `higher_` is of the classes above its own. They do not count where the floor is what serves it.
    """

    higher_input_tokens: float
    higher_output_tokens: float
    input_tokens: float
    output_tokens: float
    floor: float


@dataclass(slots=True, eq=False)
class Lane:
    """One class. `since_ns`: the last time it was served, or began to queue."""

    rank: int
    spec: PriorityClass
    counters: Counters = field(default_factory=Counters)
    queued: int = 0
    running: int = 0
    slots: int = 0
    since_ns: int = 0


@dataclass(slots=True, eq=False)
class Running:
    """An entry that runs; `input_tokens` are an estimate until they are corrected."""

    entry: Entry
    lane: Lane
    flow: Flow
    slots: int
    began_ns: int
    input_tokens: int
    output_tokens: int = 0


class FairQueue:
    """The queue of one pool of replicas."""

    def __init__(self, classes: Classes = CLASSES) -> None:
        self.classes = classes
        self.lanes = [Lane(rank, spec) for rank, spec in enumerate(classes.order)]
        self.slots = 0  # held by what runs
        self.queued = 0
        self.queued_bytes = 0
        self._waiting: dict[str, tuple[Lane, Flow]] = {}
        self._running: dict[str, Running] = {}

    @property
    def running(self) -> int:
        """Entries that run."""
        return len(self._running)

    def lane(self, entry: Entry) -> Lane:
        """The class of an entry; KeyError where there is none of that name."""
        return self.lanes[self.classes.rank(entry.priority_class)]

    def add(self, entry: Entry, now_ns: int) -> None:
        """Queue an entry, behind those of its tenant in its class."""
        name = entry.request_id
        assert name not in self._waiting, f"{name} waits already"
        assert name not in self._running, f"{name} runs already"
        lane = self.lane(entry)
        if not lane.queued:
            lane.since_ns = now_ns
        self._waiting[name] = (lane, lane.counters.join(Waiting(entry, now_ns)))
        lane.queued += 1
        self.queued += 1
        self.queued_bytes += entry.body_bytes

    def leave(self, request_id: str) -> bool:
        """Take an entry out of the queue; False where it does not queue."""
        if request_id not in self._waiting:
            return False
        lane, flow = self._waiting[request_id]
        self._gone(lane, lane.counters.leave(flow, request_id))
        lane.counters.rest(flow)
        self._tidy(lane)
        return True

    def pick(self, capacity: int, now_ns: int) -> Pick | Nobody:
        """Start the next one, where `capacity` is all slots, those that are held included."""
        free = capacity - self.slots
        if not self.queued:
            return Nobody("nobody waits")
        if free <= 0:
            return Nobody(f"all {capacity} slots are taken")
        passed: list[Flow] = []
        for lane, why in self._in_order(capacity, now_ns):
            flow = lane.counters.least()
            assert flow is not None, f"{lane.spec.name} has {lane.queued} that wait"
            if min(flow.head.entry.slots, capacity) > free:
                flow, too_large = lane.counters.least_that_fits(free, capacity)
                for each in too_large:
                    if _kept(each, lane, now_ns):
                        name = each.head.entry.request_id
                        return Nobody(f"{free} free slots are kept for {name}, which needs more")
                passed += too_large
            if flow is not None:
                for each in passed:
                    each.passed_ns = now_ns if each.passed_ns is None else each.passed_ns
                return self._start(lane, flow, capacity, now_ns, why)
        return Nobody(f"{free} slots are free, and everyone who waits needs more")

    def said(self, request_id: str, output_tokens: int) -> None:
        """A running entry has generated so many tokens by now; what is new is charged."""
        one = self._running.get(request_id)
        if one is not None and (new := output_tokens - one.output_tokens) > 0:
            one.output_tokens = output_tokens
            one.lane.counters.said(one.flow, one.entry.weight, new)

    def corrected(self, request_id: str, input_tokens: int) -> None:
        """A running entry's input is known now: this many of its tokens were not cached."""
        one = self._running.get(request_id)
        if one is not None and (more := input_tokens - one.input_tokens):
            one.input_tokens = input_tokens
            one.lane.counters.corrected(one.flow, one.entry.weight, more)

    def end(self, request_id: str) -> Running | None:
        """A running entry ended; what it was, None where it does not run."""
        one = self._running.pop(request_id, None)
        if one is None:
            return None
        self.slots -= one.slots
        one.lane.running -= 1
        one.lane.slots -= one.slots
        unused = one.entry.output_tokens - one.output_tokens
        one.lane.counters.end(one.flow, one.entry.weight, unused)
        self._tidy(one.lane)
        return one

    def undo(self, request_id: str) -> None:
        """What was just picked does not start after all: its slot and its charge are given back."""
        one = self._running[request_id]
        one.lane.counters.undo(one.flow, one.entry.weight, one.input_tokens)
        self.end(request_id)

    def ahead(self, entry: Entry, capacity: int, output_share: float) -> Ahead:
        """What starts before a new entry would. `output_share`: of the most that it may be."""
        own = self.lane(entry)
        higher = [lane.counters for lane in self.lanes[: own.rank]]
        inputs, outputs = own.counters.ahead(entry, output_share)
        return Ahead(
            sum(each.queued_input for each in higher),
            output_share * sum(each.queued_output for each in higher),
            inputs,
            outputs,
            int(own.spec.floor * capacity) / capacity if capacity > 0 else 0.0,
        )

    def _in_order(self, capacity: int, now_ns: int) -> Iterator[tuple[Lane, str]]:
        """The classes with work, in the order of one pick, each with why it stands there."""
        ranked = []
        for lane in self.lanes:
            if lane.queued:
                waited_ns = now_ns - lane.since_ns
                risen = self.classes.risen(lane.rank, waited_ns)
                if risen < 0:
                    key = (0, lane.since_ns, 0)
                    why = f"nothing of {lane.spec.name} was served for {waited_ns / NS:.1f} s"
                elif lane.slots < int(lane.spec.floor * capacity):
                    key = (1, lane.rank, 0)
                    why = f"{lane.spec.name} holds {lane.slots} slots, less than its floor"
                else:
                    key = (2, risen, -lane.rank)
                    why = f"first of {lane.spec.name}"
                    if risen < lane.rank:
                        why += f", as {self.classes.order[risen].name}"
                ranked.append((key, lane, why))
        if len(ranked) > 1:
            ranked.sort(key=lambda each: each[0])
        for _, lane, why in ranked:
            yield lane, why

    def _start(self, lane: Lane, flow: Flow, capacity: int, now_ns: int, why: str) -> Pick:
        reason = f"{why}; {flow.tenant} is in turn at {flow.counter:.0f} tokens"
        waiting = lane.counters.start(flow)
        self._gone(lane, waiting)
        entry = waiting.entry
        slots = min(entry.slots, capacity)
        one = Running(entry, lane, flow, slots, now_ns, entry.input_tokens)
        self._running[entry.request_id] = one
        self.slots += slots
        lane.running += 1
        lane.slots += slots
        lane.since_ns = now_ns
        return Pick(entry, slots, now_ns - waiting.since_ns, reason)

    def _gone(self, lane: Lane, waiting: Waiting) -> None:
        del self._waiting[waiting.entry.request_id]
        lane.queued -= 1
        self.queued -= 1
        self.queued_bytes -= waiting.entry.body_bytes

    def _tidy(self, lane: Lane) -> None:
        if not lane.queued and not lane.running:
            lane.counters.clear()


def _kept(flow: Flow, lane: Lane, now_ns: int) -> bool:
    """Whether others have passed this one long enough."""
    if flow.passed_ns is None:
        return False
    return now_ns - flow.passed_ns >= lane.spec.promotion_s * NS
