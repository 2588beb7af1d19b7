"""A virtual token counter for each tenant of one class: whose turn it is. Pure.

    served       tenant a |########|                 counter = tokens served / weight, an output
                 tenant b |#####|                              token counts twice an input token
    virtual time       ---------^ the counter of the last turn, before it was charged

The smallest counter goes first. Input is charged when an entry starts, output while it is
generated. A tenant whose queue was empty joins at the virtual time: it brings no credit from the
time in which it asked for nothing, and keeps its debt. Work that runs counts, because the virtual
time passed through it; so nobody is given credit over a tenant whose queue is just empty.

    The law: the counters of two tenants that both queue differ by `gap_bound` at most
        the most, at any start, of (its input + 2 x what the tenant's running may yet say) / weight
        + 2 x the most that one tenant runs at once x the largest error of an estimate of input
    so over any time in which both queue, what they were served differs by twice that at most.
    Where one passes another whose head is too large for what is free, what it is ahead by then is
    added to its start: the law without that holds for requests of one slot.

Source of the idea: Sheng et al., Fairness in Serving Large Language Models, 2023. Ours differs in
the join rule (start-time fair queueing's, Goyal et al. 1996; decisions/0019 says why).
"""

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field

INPUT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
_REBASE_AT = 2.0**40  # counters stay where a float knows a thousandth of a token


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that wants to run. `input_tokens` is an estimate of those that are not cached.

    `output_tokens` is the most that it may generate, `slots` how many sequences it runs at once,
    `body_bytes` what it holds in memory while it waits.
    """

    request_id: str
    model: str
    tenant: str
    priority_class: str
    input_tokens: int
    output_tokens: int
    weight: float = 1.0
    slots: int = 1
    body_bytes: int = 0


@dataclass(slots=True, eq=False)
class Waiting:
    """An entry in the queue."""

    entry: Entry
    since_ns: int


@dataclass(slots=True, eq=False)
class Flow:
    """One tenant in one class."""

    tenant: str
    number: int
    counter: float = 0.0
    weight: float = 1.0
    queue: OrderedDict[str, Waiting] = field(default_factory=OrderedDict)
    queued_input: int = 0
    queued_output: int = 0
    queued_bytes: int = 0
    running: int = 0
    owed: float = 0.0  # what may still be charged for what runs
    resting: bool = False  # whether it is among those remembered for their debt
    passed_ns: int | None = None  # since when others went ahead because its head does not fit
    key: float | None = None  # its smallest key in the heap

    @property
    def head(self) -> Waiting:
        """Who goes first; the queue must not be empty."""
        return self.queue[next(iter(self.queue))]

    @property
    def turn(self) -> tuple[float, int]:
        """What orders flows: the counter, and among equals who came first."""
        return self.counter, self.number


class Counters:
    """The tenants of one class. O(log tenants) a change; O(1) a token."""

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.virtual = 0.0
        self._largest_start = self._largest_error = 0.0
        self._most_running = 0
        self._heap: list[tuple[float, int, Flow]] = []  # keys are lower bounds of counters
        self._resting: list[tuple[float, int, Flow]] = []  # in debt, with nothing to do
        self._numbers = 0
        self.queued_input = 0
        self.queued_output = 0

    def join(self, waiting: Waiting) -> Flow:
        """Queue an entry behind those of its tenant."""
        entry = waiting.entry
        flow = self.flows.get(entry.tenant)
        if flow is None:
            self._numbers += 1
            flow = self.flows[entry.tenant] = Flow(entry.tenant, self._numbers)
        flow.weight = entry.weight
        if not flow.queue:
            flow.counter = max(flow.counter, self.virtual)
            self._push(flow)
        flow.queue[entry.request_id] = waiting
        flow.queued_input += entry.input_tokens
        flow.queued_output += entry.output_tokens
        flow.queued_bytes += entry.body_bytes
        self.queued_input += entry.input_tokens
        self.queued_output += entry.output_tokens
        return flow

    def leave(self, flow: Flow, request_id: str) -> Waiting:
        """Take an entry out of the queue, wherever it stands."""
        if flow.head.entry.request_id == request_id:
            flow.passed_ns = None
        waiting = flow.queue.pop(request_id)
        flow.queued_input -= waiting.entry.input_tokens
        flow.queued_output -= waiting.entry.output_tokens
        flow.queued_bytes -= waiting.entry.body_bytes
        self.queued_input -= waiting.entry.input_tokens
        self.queued_output -= waiting.entry.output_tokens
        return waiting

    def start(self, flow: Flow) -> Waiting:
        """The head of a flow starts to run: its input is charged."""
        least = self.least()
        ahead_by = flow.counter - least.counter if least else 0.0
        self.virtual = max(self.virtual, flow.counter)
        waiting = self.leave(flow, flow.head.entry.request_id)
        entry = waiting.entry
        flow.running += 1
        flow.owed += OUTPUT_WEIGHT * entry.output_tokens / entry.weight
        charge = INPUT_WEIGHT * entry.input_tokens / entry.weight
        flow.counter += charge
        self._most_running = max(self._most_running, flow.running)
        self._largest_start = max(self._largest_start, ahead_by + charge + flow.owed)
        self._forget()
        return waiting

    def said(self, flow: Flow, weight: float, output_tokens: int) -> None:
        """A running entry generated so many more tokens."""
        charge = OUTPUT_WEIGHT * output_tokens / weight
        flow.counter += charge
        flow.owed -= charge

    def corrected(self, flow: Flow, weight: float, input_tokens: int) -> None:
        """A running entry's input was so many tokens more than estimated; negative: fewer."""
        charge = INPUT_WEIGHT * input_tokens / weight
        self._largest_error = max(self._largest_error, abs(charge))
        flow.counter += charge
        if flow.queue:
            self._push(flow)

    def undo(self, flow: Flow, weight: float, input_tokens: int) -> None:
        """What was started has done nothing: its input is not charged."""
        flow.counter -= INPUT_WEIGHT * input_tokens / weight
        if flow.queue:
            self._push(flow)

    def end(self, flow: Flow, weight: float, unused_tokens: int) -> None:
        """One that ran has ended; `unused_tokens` of its output never came."""
        flow.running -= 1
        flow.owed -= OUTPUT_WEIGHT * unused_tokens / weight
        if not flow.running:
            flow.owed = 0.0  # no trace of rounding
        self.rest(flow)

    def rest(self, flow: Flow) -> None:
        """Where a tenant has nothing left to do, remember it only as long as it is in debt."""
        if flow.queue or flow.running or self.flows.get(flow.tenant) is not flow:
            return
        if flow.counter <= self.virtual:
            del self.flows[flow.tenant]  # it would join at the virtual time anyway
        elif not flow.resting:
            flow.resting = True
            heapq.heappush(self._resting, (flow.counter, flow.number, flow))

    def clear(self) -> None:
        """Nobody queues and nothing runs, so nobody owes anybody anything."""
        self.flows.clear()
        self._heap.clear()
        self._resting.clear()
        self.virtual = 0.0

    def least(self) -> Flow | None:
        """The flow with the smallest counter among those that queue."""
        heap = self._heap
        while heap:
            key, _, flow = heap[0]
            if flow.queue and key == flow.counter:
                return flow
            heapq.heappop(heap)
            if key == flow.key:
                flow.key = None
                if flow.queue:
                    self._push(flow)
        return None

    def least_that_fits(self, free: int, capacity: int) -> tuple[Flow | None, list[Flow]]:
        """The same among those whose head fits, and those before it that do not. O(tenants)."""
        fits, too_large = None, []
        for flow in self.flows.values():
            if flow.queue and min(flow.head.entry.slots, capacity) > free:
                too_large.append(flow)
            elif flow.queue and (fits is None or flow.turn < fits.turn):
                fits = flow
        return fits, [flow for flow in too_large if fits is None or flow.turn < fits.turn]

    def ahead(self, entry: Entry, output_share: float) -> tuple[float, float]:
        """Input and output tokens that are served before a new entry would start, with its own.

        Each other tenant is served until its counter reaches what this tenant's will be then.
        `output_share` is the part of the most output that is really generated.
        """
        own = self.flows.get(entry.tenant)
        counter = max(own.counter if own else 0.0, self.virtual)
        inputs = entry.input_tokens + (own.queued_input if own else 0.0)
        outputs = output_share * (entry.output_tokens + (own.queued_output if own else 0.0))
        until = counter + _weighed(inputs, outputs) / entry.weight
        for flow in self.flows.values():
            if flow is own or not flow.queue or flow.counter >= until:
                continue
            output = output_share * flow.queued_output
            queued = _weighed(flow.queued_input, output)
            share = min(1.0, (until - flow.counter) * flow.weight / queued) if queued else 1.0
            inputs += share * flow.queued_input
            outputs += share * output
        return inputs, outputs

    @property
    def gap_bound(self) -> float:
        """What `gap` never passes, by what was started so far."""
        return self._largest_start + 2 * self._most_running * self._largest_error

    def gap(self) -> float:
        """How far the counters of two tenants that queue are apart."""
        counters = [flow.counter for flow in self.flows.values() if flow.queue]
        return max(counters) - min(counters) if counters else 0.0

    def _push(self, flow: Flow) -> None:
        if flow.key is None or flow.counter < flow.key:
            flow.key = flow.counter
            heapq.heappush(self._heap, (flow.counter, flow.number, flow))

    def _forget(self) -> None:
        """Debts that virtual time has passed are none any more."""
        resting = self._resting
        while resting and resting[0][0] <= self.virtual:
            flow = heapq.heappop(resting)[2]
            flow.resting = False
            self.rest(flow)
        if self.virtual > _REBASE_AT:
            self._rebase()

    def _rebase(self) -> None:
        """Count anew from the virtual time: only differences matter."""
        base, self.virtual = self.virtual, 0.0
        self._heap.clear()
        self._resting.clear()
        for flow in list(self.flows.values()):
            flow.counter -= base
            flow.key, flow.resting = None, False
            if flow.queue:
                self._push(flow)
            self.rest(flow)


def _weighed(input_tokens: float, output_tokens: float) -> float:
    return INPUT_WEIGHT * input_tokens + OUTPUT_WEIGHT * output_tokens
