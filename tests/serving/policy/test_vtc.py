"""Counters of tenants: whose turn it is, and that nobody gets ahead by more than the bound."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.policy.fair import FairQueue, Pick
from ridgeline.serving.policy.vtc import Counters, Entry, Waiting

MOST_INPUT, MOST_OUTPUT, SLOTS = 400, 60, 4


def entry(name: str, tenant: str, inputs: int = 100, outputs: int = 50, **other) -> Entry:
    return Entry(name, "m", tenant, "default", inputs, outputs, **other)


def picked(queue: FairQueue, capacity: int = 1, now_ns: int = 0) -> str:
    pick = queue.pick(capacity, now_ns)
    assert isinstance(pick, Pick), pick
    return pick.entry.request_id


def test_the_tenant_that_was_served_less_goes_first() -> None:
    queue = FairQueue()
    for n in range(3):
        queue.add(entry(f"a{n}", "a"), 0)
    for n in range(3):
        queue.add(entry(f"b{n}", "b", inputs=200), 0)
    order = []
    for _ in range(6):
        order.append(picked(queue))
        queue.end(order[-1])
    assert order == ["a0", "b0", "a1", "a2", "b1", "b2"]  # at 0 0, 100 0, 100 200, 200 200, 300 200


def test_output_counts_twice_and_at_once() -> None:
    queue = FairQueue()
    for n in range(2):
        queue.add(entry(f"a{n}", "a"), 0)
        queue.add(entry(f"b{n}", "b", inputs=150), 0)
    assert picked(queue, 3) == "a0"
    assert picked(queue, 3) == "b0"
    queue.said("a0", 20)
    queue.said("a0", 26)  # 100 + 52 is more than 150
    queue.said("a0", 26)  # said before
    assert picked(queue, 3) == "b1"


def test_a_weight_of_two_is_served_twice_as_much() -> None:
    queue = FairQueue()
    for n in range(300):
        queue.add(entry(f"a{n}", "a", weight=2.0), 0)
        queue.add(entry(f"b{n}", "b"), 0)
    served = {"a": 0, "b": 0}
    for _ in range(300):
        name = picked(queue)
        queue.said(name, 50)
        queue.end(name)
        served[name[0]] += 1
    assert served["a"] == pytest.approx(200, abs=2)


def test_who_was_idle_joins_without_credit_and_without_losing_its_debt() -> None:
    queue = FairQueue()
    for n in range(50):
        queue.add(entry(f"a{n}", "a"), 0)
    for _ in range(10):
        queue.end(picked(queue))
    for n in range(5):
        queue.add(entry(f"b{n}", "b"), 0)
    order = []
    for _ in range(6):
        order.append(picked(queue)[0])
        queue.end(
            f"{order[-1]}{order.count('a') + 9 if order[-1] == 'a' else order.count('b') - 1}"
        )
    assert sorted(order) == ["a"] * 3 + ["b"] * 3  # and not five of b for the ten of a


def test_one_request_at_a_time_does_not_wash_a_debt_away() -> None:
    """A tenant that is idle for a moment between its requests is no newcomer."""
    queue = FairQueue()
    for n in range(40):
        queue.add(entry(f"b{n}", "b", inputs=10), 0)
    served = 0
    for n in range(20):
        queue.add(entry(f"a{n}", "a", inputs=100), 0)
        while (name := picked(queue)) != f"a{n}":
            queue.end(name)
            served += 1
        queue.end(name)
        if not queue.queued:
            break
    assert served >= 30  # some ten small ones between two large ones


def test_running_work_counts_where_the_queue_is_empty() -> None:
    """The trap: with nobody in the queue a newcomer would start at zero, far ahead of who runs."""
    queue = FairQueue()
    for n in range(20):
        queue.add(entry(f"a{n}", "a"), 0)
    for _ in range(20):
        assert picked(queue, 20)[0] == "a"
    for n in range(20):
        queue.add(entry(f"b{n}", "b"), 0)
        queue.add(entry(f"c{n}", "a"), 0)
    first = [picked(queue, 40)[0] for _ in range(20)]
    assert 8 <= first.count("c") <= 12


def test_a_tenant_without_work_is_forgotten_once_it_owes_nothing() -> None:
    queue = FairQueue()
    flows = queue.lanes[2].counters.flows
    queue.add(entry("a0", "a", inputs=1_000), 0)
    queue.add(entry("b0", "b"), 0)
    queue.end(picked(queue))
    assert set(flows) == {"a", "b"}  # a owes
    for n in range(1, 20):
        queue.add(entry(f"b{n}", "b"), 0)
        queue.end(picked(queue))
    assert set(flows) == {"b"}
    queue.end(picked(queue))
    assert not flows  # nobody is there, so nobody owes anybody anything


def test_whoever_leaves_last_leaves_no_debts_behind() -> None:
    queue = FairQueue()
    queue.add(entry("a", "a", inputs=1_000), 0)
    queue.add(entry("b", "b"), 0)
    queue.end(picked(queue))
    queue.leave("b")
    assert not queue.lanes[2].counters.flows


def test_connecting_and_leaving_for_ever_leaves_nothing_behind() -> None:
    queue = FairQueue()
    queue.add(entry("b", "b"), 0)
    for n in range(1_000):
        queue.add(entry(f"a{n}", f"a{n % 3}"), 0)
        assert queue.leave(f"a{n}")
        assert not queue.leave(f"a{n}")
    counters = queue.lanes[2].counters
    assert set(counters.flows) == {"b"}
    assert not counters._resting
    counters.least()
    queue.leave("b")
    assert (queue.queued, queue.queued_bytes, counters.queued_input) == (0, 0, 0)


def test_a_debtor_who_comes_and_goes_is_remembered_once() -> None:
    queue = FairQueue()
    queue.add(entry("a", "a", inputs=10_000), 0)
    queue.add(entry("b", "b"), 0)
    queue.end(picked(queue))
    for n in range(1_000):
        queue.add(entry(f"a{n}", "a"), 0)
        queue.leave(f"a{n}")
    assert len(queue.lanes[2].counters._resting) == 1


def test_what_passes_a_large_request_widens_the_bound_by_as_much() -> None:
    queue = FairQueue()
    counters = queue.lanes[2].counters
    queue.add(entry("z", "z"), 0)
    picked(queue, 4)
    queue.add(entry("large", "a", slots=4), 0)
    for n in range(20):
        queue.add(entry(f"b{n}", "b"), 0)
    for _ in range(19):
        queue.end(picked(queue, 4))
        assert counters.gap() <= counters.gap_bound
    assert counters.gap() == 1_900


def test_counters_stay_small_and_keep_the_order() -> None:
    queue = FairQueue()
    for n in range(60):
        queue.add(entry(f"a{n}", "a", inputs=2**39), 0)
        queue.add(entry(f"b{n}", "b", inputs=2**38), 0)
    served = {"a": 0, "b": 0}
    for _ in range(60):
        name = picked(queue)
        queue.end(name)
        served[name[0]] += 1
        assert abs(queue.lanes[2].counters.virtual) <= 2**41
    assert served == {"a": 20, "b": 40}


def test_a_correction_gives_back_what_was_cached() -> None:
    queue = FairQueue()
    for n in range(3):
        queue.add(entry(f"a{n}", "a"), 0)
        queue.add(entry(f"b{n}", "b", inputs=30), 0)
    assert picked(queue, 9) == "a0"
    assert picked(queue, 9) == "b0"
    queue.corrected("a0", 0)
    assert [picked(queue, 9) for _ in range(2)] == ["a1", "b1"]


class World:
    """Tenants that always have something queued, and replicas of which nobody knows the order."""

    def __init__(self, seed: int, weights: list[float], errors: int) -> None:
        self.chance = random.Random(seed)
        self.queue = FairQueue()
        self.weights = {f"t{n}": weight for n, weight in enumerate(weights)}
        self.errors = errors
        self.made = 0
        self.service = dict.fromkeys(self.weights, 0.0)
        self.running: dict[str, tuple[Entry, int]] = {}
        for tenant in self.weights:
            self.refill(tenant)

    def refill(self, tenant: str) -> None:
        self.made += 1
        self.queue.add(
            entry(
                f"{tenant}-{self.made}",
                tenant,
                self.chance.randint(1, MOST_INPUT),
                self.chance.randint(1, MOST_OUTPUT),
                weight=self.weights[tenant],
            ),
            0,
        )

    def step(self) -> None:
        if self.running and self.chance.random() < 0.6:
            self.advance(self.chance.choice(sorted(self.running)))
        elif isinstance(pick := self.queue.pick(SLOTS, 0), Pick):
            one = pick.entry
            self.running[one.request_id] = (one, 0)
            self.service[one.tenant] += one.input_tokens / one.weight
            self.refill(one.tenant)

    def advance(self, name: str) -> None:
        one, said = self.running[name]
        choice = self.chance.random()
        if choice < 0.2 and self.errors:
            real = max(0, one.input_tokens - self.chance.randint(0, self.errors))
            self.queue.corrected(name, real)
            self.service[one.tenant] += (real - one.input_tokens) / one.weight
            self.errors_seen = True
        elif choice < 0.8 and said < one.output_tokens:
            more = self.chance.randint(1, one.output_tokens - said)
            self.running[name] = (one, said + more)
            self.queue.said(name, said + more)
            self.service[one.tenant] += 2 * more / one.weight
            return
        self.queue.end(name)
        del self.running[name]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=5),
    st.sampled_from([0, 0, 300]),
)
def test_two_backlogged_tenants_are_never_further_apart_than_the_bound(
    seed: int, weights: list[float], errors: int
) -> None:
    """The law. From a common start the gap is one bound, over any later interval twice that."""
    world = World(seed, weights, errors)
    counters = world.queue.lanes[2].counters
    gaps: dict[tuple[str, str], list[float]] = {}
    for _ in range(600):
        world.step()
        assert counters.gap() <= counters.gap_bound + 1e-6
        for one in world.service:
            for other in world.service:
                if one < other:
                    gap = world.service[one] - world.service[other]
                    low, high = gaps.setdefault((one, other), [gap, gap])
                    gaps[one, other] = [min(low, gap), max(high, gap)]
    for low, high in gaps.values():
        assert max(-low, high) <= counters.gap_bound + 1e-6
        assert high - low <= 2 * counters.gap_bound + 1e-6
    if not errors and set(weights) == {1.0}:
        # The paper's bound, by the most that could come: 2 max(input, running output x 2).
        assert counters.gap_bound <= 2 * max(MOST_INPUT, 2 * SLOTS * MOST_OUTPUT)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_bound_holds_where_tenants_come_and_go(seed: int) -> None:
    chance = random.Random(seed)
    queue = FairQueue()
    counters = queue.lanes[2].counters
    queued: list[str] = []
    running: dict[str, list[int]] = {}
    for n in range(800):
        choice = chance.random()
        if choice < 0.35:
            name = f"{chance.choice('abcd')}{n}"
            most = chance.randint(1, MOST_OUTPUT)
            queue.add(entry(name, name[0], chance.randint(1, MOST_INPUT), most), 0)
            queued.append(name)
        elif choice < 0.45 and queued:
            queue.leave(queued.pop(chance.randrange(len(queued))))
        elif choice < 0.7 and isinstance(pick := queue.pick(SLOTS, 0), Pick):
            queued.remove(pick.entry.request_id)
            running[pick.entry.request_id] = [0, pick.entry.output_tokens]
        elif running:
            name = chance.choice(sorted(running))
            running[name][0] += chance.randint(0, running[name][1] - running[name][0])
            queue.said(name, running[name][0])
            if chance.random() < 0.5:
                queue.end(name)
                del running[name]
        assert counters.gap() <= counters.gap_bound + 1e-6
        least = min(
            (flow.turn for flow in counters.flows.values() if flow.queue), default=(None, None)
        )
        found = counters.least()
        assert (found.turn if found else (None, None)) == least
        assert len(counters._heap) <= 4 + 4 * len(counters.flows)


def test_work_ahead_is_what_fair_turns_let_pass() -> None:
    counters = Counters()
    for n in range(10):
        counters.join(Waiting(entry(f"a{n}", "a", 100, 0), 0))
    # A newcomer waits for itself, and for as much of the other's; the flood waits for all.
    assert counters.ahead(entry("b", "b", 300, 0), 1.0) == (600.0, 0.0)
    assert counters.ahead(entry("a", "a", 300, 0), 1.0) == (1300.0, 0.0)
    assert counters.ahead(entry("b", "b", 100, 400), 0.5) == (600.0, 200.0)
