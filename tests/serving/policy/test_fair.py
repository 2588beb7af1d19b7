"""Who starts next: classes, floors, rising, and requests that are too large for what is free."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.policy.classes import CLASSES, NS
from ridgeline.serving.policy.fair import FairQueue, Nobody, Pick
from ridgeline.serving.policy.vtc import Entry

NAMES = [each.name for each in CLASSES.order]


def entry(name: str, of: str = "default", tenant: str = "a", **other) -> Entry:
    values = {"input_tokens": 100, "output_tokens": 50}
    return Entry(name, "m", tenant, of, **(values | other))


def picked(queue: FairQueue, capacity: int, now_s: float = 0.0) -> Pick:
    pick = queue.pick(capacity, int(now_s * NS))
    assert isinstance(pick, Pick), pick.reason
    return pick


def test_nobody_says_why() -> None:
    queue = FairQueue()
    assert queue.pick(1, 0) == Nobody("nobody waits")
    queue.add(entry("one"), 0)
    assert queue.pick(0, 0) == Nobody("all 0 slots are taken")
    picked(queue, 1)
    queue.add(entry("two"), 0)
    assert queue.pick(1, 0) == Nobody("all 1 slots are taken")


def test_a_higher_class_goes_first_and_the_reason_says_so() -> None:
    queue = FairQueue()
    for of in reversed(NAMES):
        queue.add(entry(of, of), 0)
    picks = [picked(queue, 4) for _ in NAMES]
    assert [pick.entry.request_id for pick in picks] == NAMES
    assert picks[0].reason == "first of system; a is in turn at 0 tokens"


def test_an_id_is_used_once() -> None:
    queue = FairQueue()
    queue.add(entry("one"), 0)
    with pytest.raises(AssertionError, match="waits already"):
        queue.add(entry("one"), 0)
    picked(queue, 1)
    with pytest.raises(AssertionError, match="runs already"):
        queue.add(entry("one"), 0)


def test_a_floor_is_kept_for_each_class_under_a_flood_from_above() -> None:
    """40 slots: system 2, interactive 8, default 4, bulk 2; the flood gets the rest."""
    queue = FairQueue()
    for n in range(200):
        for of in NAMES:
            queue.add(entry(f"{of}{n}", of), 0)
    running = [picked(queue, 40).entry for _ in range(40)]
    held = {of: sum(each.priority_class == of for each in running) for of in NAMES}
    assert held == {"system": 26, "interactive": 8, "default": 4, "bulk": 2}
    chance = random.Random(1)
    for _ in range(300):  # and it stays so
        queue.end(running.pop(chance.randrange(40)).request_id)
        running.append(picked(queue, 40).entry)
        if not queue.lanes[0].queued:
            break
        assert all(lane.slots >= int(lane.spec.floor * 40) for lane in queue.lanes)


def test_no_slot_is_kept_empty_for_a_class_that_asks_for_nothing() -> None:
    queue = FairQueue()
    for n in range(40):
        queue.add(entry(str(n), "bulk"), 0)
    assert sum(isinstance(queue.pick(40, 0), Pick) for _ in range(40)) == 40


def test_a_class_that_is_not_served_rises_and_in_the_end_goes_before_everybody() -> None:
    """One slot, so that no floor is a whole one."""
    queue = FairQueue()
    queue.add(entry("bulk", "bulk"), 0)
    order = []
    for second in range(200):
        queue.add(entry(f"i{second}", "interactive", "b"), second * NS)
        pick = picked(queue, 1, second)
        order.append(pick.entry.priority_class)
        queue.end(pick.entry.request_id)
    # 120 s to default, 30 s to interactive, where it goes first.
    assert order.index("bulk") == 150
    queue = FairQueue()
    queue.add(entry("bulk", "bulk"), 0)
    for second in range(200):
        queue.add(entry(f"s{second}", "system", "b"), second * NS)
        pick = picked(queue, 1, second)
        queue.end(pick.entry.request_id)
        if pick.entry.priority_class == "bulk":
            assert second == 155
            assert pick.reason.startswith("first of bulk, as system;")
            return
    raise AssertionError("it starved")


def test_above_all_stands_who_waited_longest() -> None:
    queue = FairQueue()
    queue.add(entry("default"), 0)
    queue.add(entry("interactive", "interactive"), 1 * NS)
    queue.add(entry("system", "system"), 99 * NS)
    order = [picked(queue, 3, 100).entry.request_id for _ in range(3)]
    assert order == ["default", "interactive", "system"]


def test_an_old_backlog_of_a_low_class_is_no_second_flood() -> None:
    """Every entry is older than any promotion; still only one goes ahead each time it rises."""
    queue = FairQueue()
    for n in range(1_000):
        queue.add(entry(f"b{n}", "bulk", "flood"), 0)
    start = 10_000
    ahead = 0
    for second in range(start, start + 600):
        queue.add(entry(f"i{second}", "interactive", "b"), second * NS)
        pick = picked(queue, 1, second)
        queue.end(pick.entry.request_id)
        ahead += pick.entry.priority_class == "bulk"
    assert ahead == 4  # at once, and each 150 s


def test_an_oversized_head_lets_other_tenants_pass() -> None:
    queue = FairQueue()
    picked_first = [entry(f"r{n}", tenant="z") for n in range(3)]
    for one in picked_first:
        queue.add(one, 0)
        picked(queue, 4)
    queue.add(entry("large", tenant="a", slots=3), 0)
    queue.add(entry("small", tenant="b"), 0)
    assert picked(queue, 4).entry.request_id == "small"


@pytest.mark.parametrize("of", NAMES)
def test_an_oversized_request_waits_for_what_runs_and_not_for_ever(of: str) -> None:
    """Small ones of all classes flow past it, until what frees up is kept for it."""
    queue = FairQueue()
    chance = random.Random(2)
    queue.add(entry("large", of, "large", slots=100), 0)
    running: list[str] = []
    for second in range(400):
        while len(running) > 2:
            queue.end(running.pop(chance.randrange(len(running))))
        for name in NAMES:
            queue.add(entry(f"{name}{second}", name, f"t{second % 3}"), second * NS)
        while isinstance(pick := queue.pick(4, second * NS), Pick):
            if pick.entry.request_id == "large":
                rank = NAMES.index(of)
                bound_s = CLASSES.top_ns(rank) / NS + CLASSES.order[rank].promotion_s
                assert pick.slots == 4  # all there are
                assert second <= bound_s + 2
                return
            running.append(pick.entry.request_id)
        if not running:
            raise AssertionError("slots stay empty, and nobody gets them")
        queue.end(running.pop(0))
    raise AssertionError("it starved")


def test_what_is_kept_says_for_whom() -> None:
    queue = FairQueue()
    queue.add(entry("running", tenant="z"), 0)
    picked(queue, 4)
    queue.add(entry("large", tenant="a", slots=4), 0)
    queue.add(entry("b0", tenant="b"), 0)
    assert picked(queue, 4).entry.request_id == "b0"
    queue.end("b0")
    queue.add(entry("b1", tenant="c"), 0)
    assert queue.pick(4, 31 * NS) == Nobody("3 free slots are kept for large, which needs more")
    queue.leave("large")
    assert picked(queue, 4, 31).entry.request_id == "b1"


def test_patience_for_one_large_request_is_not_inherited_by_the_next() -> None:
    queue = FairQueue()
    queue.add(entry("running", tenant="z"), 0)
    picked(queue, 4)
    for name in ("large", "next"):
        queue.add(entry(name, tenant="a", slots=4), 0)
    for n in range(3):
        queue.add(entry(f"b{n}", tenant="b"), 0)
    queue.end(picked(queue, 4).entry.request_id)
    queue.leave("large")
    queue.end(picked(queue, 4, 31).entry.request_id)  # "next" is passed for the first time
    assert isinstance(queue.pick(4, 62 * NS), Nobody)


def test_what_is_undone_leaves_no_trace() -> None:
    queue = FairQueue()
    queue.add(entry("one"), 0)
    queue.add(entry("two"), 0)
    picked(queue, 1)
    queue.undo("one")
    flow = queue.lanes[2].counters.flows["a"]
    assert (queue.slots, queue.running, flow.counter, flow.owed) == (0, 0, 0, 0)
    assert picked(queue, 1).entry.request_id == "two"


def test_what_is_unknown_is_nothing() -> None:
    queue = FairQueue()
    queue.said("ghost", 5)
    queue.corrected("ghost", 5)
    assert queue.end("ghost") is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 24))
def test_books_agree_and_no_slot_is_idle_beside_one_that_fits(seed: int, capacity: int) -> None:
    chance = random.Random(seed)
    queue = FairQueue()
    now_ns, running, waiting = 0, {}, set()
    for n in range(300):
        now_ns += chance.choice([0, NS // 10, 20 * NS])
        choice = chance.random()
        if choice < 0.4:
            one = entry(f"r{n}", chance.choice(NAMES), chance.choice("abc"))
            if chance.random() < 0.2:
                one = entry(f"r{n}", slots=chance.randint(2, 6))
            queue.add(one, now_ns)
            waiting.add(one.request_id)
        elif choice < 0.5 and waiting:
            name = chance.choice(sorted(waiting))
            waiting.discard(name)
            assert queue.leave(name)
        elif choice < 0.8 and running:
            name = chance.choice(sorted(running))
            del running[name]
            assert queue.end(name) is not None
        else:
            pick = queue.pick(capacity, now_ns)
            if isinstance(pick, Pick):
                waiting.remove(pick.entry.request_id)
                running[pick.entry.request_id] = pick.slots
            elif "kept" not in pick.reason:
                free = capacity - queue.slots
                heads = [
                    flow.head.entry
                    for lane in queue.lanes
                    for flow in lane.counters.flows.values()
                    if flow.queue
                ]
                assert free <= 0 or all(min(one.slots, capacity) > free for one in heads)
        assert queue.slots == sum(running.values()) <= capacity
        assert queue.queued == len(waiting) == sum(lane.queued for lane in queue.lanes)
        assert queue.running == len(running)


def test_a_hundred_thousand_entries_are_no_burden() -> None:
    """Measured: some 10 us an entry in and out; the bound only tells linear from quadratic."""
    queue = FairQueue()
    began = time.perf_counter()
    for n in range(100_000):
        queue.add(entry(str(n), tenant=f"t{n % 1_000}"), n)
    for n in range(100_000):
        pick = queue.pick(8, 100_000 + n)
        assert isinstance(pick, Pick)
        queue.end(pick.entry.request_id)
    assert time.perf_counter() - began < 30
    assert queue.queued == 0
