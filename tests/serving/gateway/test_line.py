"""The live line: nobody is forgotten, no slot is lost, whatever is cancelled when."""

import asyncio

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ridgeline.serving.gateway.line import Line, Ticket
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.admit import Bounds, PoolRates
from ridgeline.serving.policy.classes import Classes, PriorityClass
from ridgeline.serving.policy.vtc import Entry

FAST = Classes((PriorityClass("default", 0.5, 0.001, 30.0),))


def entry(name: str, tenant: str = "a", **other) -> Entry:
    values = {"model": "m", "priority_class": "default", "input_tokens": 10, "output_tokens": 20}
    return Entry(name, tenant=tenant, **(values | other))


async def turn() -> None:
    """Let everything that is ready run, to its end."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_free_slot_is_given_without_waiting() -> None:
    line = Line(lambda model: 1)
    entering = line.enter(entry("one"))
    with pytest.raises(StopIteration) as stop:
        entering.send(None)  # no loop is asked for anything
    ticket = stop.value.value
    assert ticket.waited_s < 0.1
    assert "in turn" in ticket.reason
    ticket.close()
    ticket.close()  # twice is once
    assert line.in_flight == 0


async def test_a_closed_ticket_lets_the_next_in() -> None:
    line = Line(lambda model: 1)
    first = await line.enter(entry("one"))
    second = asyncio.create_task(line.enter(entry("two")))
    await turn()
    assert line.queued == 1
    with first:
        first.said(20)
        first.corrected(3)
    assert (await second).entry.request_id == "two"
    assert line.queued == 0


async def test_whoever_leaves_the_queue_is_gone_at_once() -> None:
    line = Line(lambda model: 1)
    first = await line.enter(entry("one"))
    tasks = [asyncio.create_task(line.enter(entry(name))) for name in ("two", "three")]
    await turn()
    tasks[0].cancel()
    await turn()
    assert line.queued == 1
    first.close()
    assert (await tasks[1]).entry.request_id == "three"


async def test_a_slot_given_to_one_who_leaves_in_that_moment_goes_to_the_next() -> None:
    line = Line(lambda model: 1)
    first = await line.enter(entry("one"))
    tasks = [asyncio.create_task(line.enter(entry(name))) for name in ("two", "three")]
    await turn()
    first.close()  # "two" has it now and does not know
    tasks[0].cancel()
    assert (await tasks[1]).entry.request_id == "three"
    assert line.in_flight == 1


async def test_one_who_has_left_and_is_picked_before_he_knows_costs_his_tenant_nothing() -> None:
    line = Line(lambda model: 1)
    first = await line.enter(entry("one"))
    tasks = [
        asyncio.create_task(line.enter(entry(name, tenant)))
        for name, tenant in [("two", "b"), ("three", "c")]
    ]
    await turn()
    tasks[0].cancel()
    first.close()  # picks "two", whose future is cancelled
    assert (await tasks[1]).entry.request_id == "three"
    assert line.in_flight == 1
    assert "b" not in {flow.tenant for flow in line.snapshot()[0].classes[2].tenants}


async def test_what_was_kept_for_one_who_leaves_goes_to_the_next() -> None:
    now_s = [0]
    line = Line(lambda model: 2, now_ns=lambda: now_s[0] * 10**9)
    await line.enter(entry("running", "z"))
    large = asyncio.create_task(line.enter(entry("large", "a", slots=2)))
    await turn()
    (await line.enter(entry("passes", "b"))).close()
    now_s[0] = 31
    small = asyncio.create_task(line.enter(entry("small", "c")))
    await turn()
    assert not small.done()  # the free slot is kept
    large.cancel()
    assert (await small).waited_s == 0


async def test_slots_that_come_later_are_given_out() -> None:
    there = {"m": 0}
    line = Line(lambda model: there[model])
    tasks = [asyncio.create_task(line.enter(entry(str(n)))) for n in range(3)]
    await turn()
    assert line.queued == 3  # no replica: they queue and do not fail
    there["m"] = 2
    line.changed("m")
    line.changed("unknown")
    await turn()
    assert sorted(task.done() for task in tasks) == [False, True, True]
    (await tasks[0]).close()
    await tasks[2]


async def test_patience_that_runs_out_is_a_429_that_says_when_to_come_again() -> None:
    line = Line(lambda model: 1, classes=FAST)
    await line.enter(entry("one"))
    with pytest.raises(ApiError) as refused:
        await line.enter(entry("two"))
    assert refused.value.status == 429
    assert int(refused.value.headers["Retry-After"]) >= 1
    assert "no slot came free" in refused.value.message
    assert line.queued == 0


async def test_a_wait_beyond_patience_is_refused_at_once_with_the_time_it_takes() -> None:
    rates = PoolRates(1_000.0, 1.0, "the step-time model")
    line = Line(lambda model: 1, rates=lambda model: rates)
    await line.enter(entry("one"))
    waiting = [asyncio.create_task(line.enter(entry(f"w{n}"))) for n in range(2)]
    await turn()
    with pytest.raises(ApiError) as refused:
        await line.enter(entry("late", output_tokens=60))
    assert refused.value.status == 429
    # 40 + 60 output tokens at 1/s and 30 of input at 1,000/s, less the minute it would wait
    assert refused.value.headers["Retry-After"] == "41"
    assert "step-time model" in refused.value.message
    for task in waiting:
        task.cancel()


async def test_a_full_queue_refuses_the_tenant_who_fills_it_and_nobody_else() -> None:
    line = Line(lambda model: 1, bounds=Bounds(entries=8))
    await line.enter(entry("one"))
    tasks = [asyncio.create_task(line.enter(entry(f"a{n}"))) for n in range(6)]
    await turn()
    assert [task.done() for task in tasks] == [False] * 4 + [True] * 2
    assert {int(task.exception().status) for task in tasks[4:]} == {429}
    other = asyncio.create_task(line.enter(entry("b0", "b")))
    await turn()
    assert not other.done()
    for task in [*tasks, other]:
        task.cancel()


async def test_a_stopping_gateway_takes_nobody_new_and_serves_who_waits() -> None:
    line = Line(lambda model: 1)
    first = await line.enter(entry("one"))
    second = asyncio.create_task(line.enter(entry("two")))
    await turn()
    line.drain()
    with pytest.raises(ApiError) as refused:
        await line.enter(entry("three"))
    assert refused.value.status == 503
    first.close()
    (await second).close()
    assert line.in_flight == 0


async def test_an_entry_of_an_unknown_class_is_our_own_mistake() -> None:
    line = Line(lambda model: 0)
    with pytest.raises(KeyError):
        await line.enter(entry("one", priority_class="urgent"))
    assert line.in_flight == 0


async def test_the_snapshot_shows_classes_and_tenants() -> None:
    line = Line(lambda model: 1)
    ticket = await line.enter(entry("one"))
    task = asyncio.create_task(line.enter(entry("two", "b", priority_class="bulk")))
    await turn()
    ticket.said(5)
    (pool,) = line.snapshot()
    assert (pool.model, pool.capacity, pool.held) == ("m", 1, 1)
    default, bulk = pool.classes[2], pool.classes[3]
    assert (default.running, default.tenants[0].counter_tokens) == (1, 20.0)
    assert (bulk.queued, bulk.tenants[0].tenant) == (1, "b")
    assert bulk.oldest_wait_s >= 0
    task.cancel()


class Life(RuleBasedStateMachine):
    """Requests enter, start, end, leave and are cancelled at every point; slots come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.slots = 2
        self.line = Line(lambda model: self.slots)
        self.tasks: dict[str, asyncio.Task[Ticket]] = {}
        self.tickets: dict[str, Ticket] = {}
        self.made = 0

    def teardown(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        self.run()
        for ticket in self.tickets.values():
            ticket.close()
        assert self.line.in_flight == 0
        assert sum(pool.held for pool in self.line.snapshot()) == 0
        self.loop.close()

    def run(self) -> None:
        """Everything that is ready runs; then every task knows its result."""
        self.loop.run_until_complete(turn())
        for name, task in list(self.tasks.items()):
            if task.done():
                del self.tasks[name]
                if not task.cancelled():
                    self.tickets[name] = task.result()

    @rule(
        tenant=st.sampled_from("abc"),
        of=st.sampled_from(["system", "interactive", "default", "bulk"]),
        slots=st.integers(1, 3),
    )
    def enter(self, tenant: str, of: str, slots: int) -> None:
        self.made += 1
        one = entry(f"r{self.made}", tenant, priority_class=of, slots=slots)
        self.tasks[one.request_id] = self.loop.create_task(self.line.enter(one))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """At any point: not begun, waiting, just given a slot, or told to leave before."""
        self.tasks[data.draw(st.sampled_from(sorted(self.tasks)))].cancel()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), said=st.integers(0, 20))
    def close(self, data: st.DataObject, said: int) -> None:
        ticket = self.tickets.pop(data.draw(st.sampled_from(sorted(self.tickets))))
        ticket.said(said)
        ticket.close()

    @rule(slots=st.integers(0, 5))
    def resize(self, slots: int) -> None:
        self.slots = slots
        self.line.changed("m")

    @rule()
    def settle(self) -> None:
        self.run()

    @invariant()
    def never_more_than_there_is(self) -> None:
        for pool in self.line.snapshot():
            assert sum(each.gap_tokens <= each.gap_bound_tokens for each in pool.classes) == 4

    @precondition(lambda self: self.made)
    @rule()
    def nobody_waits_beside_a_free_slot(self) -> None:
        """After all is said and done: no wake-up was lost, and the books agree with the world."""
        self.run()
        (pool,) = self.line.snapshot() or [None]
        if pool is None:
            return
        assert pool.held == sum(ticket.slots for ticket in self.tickets.values())
        assert self.line.queued == len(self.tasks)
        assert not self.tasks.keys() & self.tickets.keys()
        free = self.slots - pool.held
        for lane in self.line._pools["m"].pool.queue.lanes:
            for flow in lane.counters.flows.values():
                if flow.queue and free > 0:
                    assert min(flow.head.entry.slots, self.slots) > free


Life.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLife = Life.TestCase
