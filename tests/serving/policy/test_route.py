"""The rules of routing, alone: no gateway, no clock."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.route import (
    RULES,
    STALE_NS,
    NoRoute,
    Replica,
    Request,
    RetryBudget,
    Route,
    State,
    least_load,
    round_robin,
)

M = frozenset({"m"})
ASK = Request("m")

fleets = st.lists(
    st.builds(
        Replica,
        id=st.sampled_from([f"r{i}" for i in range(8)]),
        state=st.sampled_from(State),
        models=st.sampled_from([None, M, frozenset({"other"}), frozenset({"m", "other"})]),
        running=st.integers(0, 100),
        others=st.integers(0, 100),
        reported_ns=st.integers(0, 10**11),
    ),
    max_size=8,
    unique_by=lambda one: one.id,
)
anyone = st.sampled_from(["", "r0", "r3", "r7", "gone"])
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def fleet(*running: int) -> list[Replica]:
    return [Replica(f"r{i}", State.READY, M, n) for i, n in enumerate(running)]


@rules
@given(fleets, anyone, st.frozensets(anyone), st.integers(0, 10**11))
def test_only_a_ready_untried_replica_with_the_model_is_chosen(rule, seen, last, tried, now_ns):
    answer = rule(Request("m", tried), seen, last, now_ns)
    able = {r.id for r in seen if r.state is State.READY and r.models and "m" in r.models} - tried
    assert (answer.replica in able) if isinstance(answer, Route) else not able
    assert answer.reason


@rules
@given(fleets, anyone, st.integers(0, 10**11), st.randoms(use_true_random=False))
def test_the_order_in_which_replicas_are_listed_does_not_matter(rule, seen, last, now_ns, random):
    shuffled = random.sample(seen, len(seen))
    one, other = rule(ASK, seen, last, now_ns), rule(ASK, shuffled, last, now_ns)
    assert isinstance(one, NoRoute) or one == other


@given(fleets, anyone, st.integers(0, 10**11))
def test_least_load_never_passes_over_a_less_loaded_replica(seen, last, now_ns):
    answer = least_load(ASK, seen, last, now_ns)
    if isinstance(answer, Route):
        chosen = next(r for r in seen if r.id == answer.replica)
        able = [r for r in seen if r.state is State.READY and r.models and "m" in r.models]
        assert chosen.load(now_ns) == min(r.load(now_ns) for r in able)


@rules
@given(st.integers(1, 8), st.integers(1, 64))
def test_a_herd_in_one_instant_spreads_evenly(rule, replicas, herd):
    seen = fleet(*[0] * replicas)
    last = ""
    for _ in range(herd):
        last = rule(ASK, seen, last, 0).replica
        next(r for r in seen if r.id == last).running += 1
    counts = [r.running for r in seen]
    assert max(counts) - min(counts) <= 1


def test_a_herd_fills_the_emptier_replicas_first() -> None:
    seen = fleet(6, 0, 3)
    for _ in range(9):
        chosen = least_load(ASK, seen, "", 0).replica
        next(r for r in seen if r.id == chosen).running += 1
    assert [r.running for r in seen] == [6, 6, 6]


def test_equal_loads_take_turns() -> None:
    seen, last, order = fleet(2, 2, 2), "", []
    for _ in range(6):
        last = least_load(ASK, seen, last, 0).replica
        order.append(last)
    assert order == ["r0", "r1", "r2", "r0", "r1", "r2"]


@given(st.lists(st.sampled_from(State), max_size=200))
def test_turns_stay_fair_to_those_who_stay_while_another_comes_and_goes(states) -> None:
    seen, last, counts = fleet(0, 0, 0), "", Counter()
    for seen[1].state in states:
        last = round_robin(ASK, seen, last, 0).replica
        counts[last] += 1
    assert abs(counts["r0"] - counts["r2"]) <= 1


def test_load_from_elsewhere_counts_only_while_the_report_is_fresh() -> None:
    mine, shared = fleet(2, 0)
    shared.others, shared.reported_ns = 5, 1000
    assert least_load(ASK, [mine, shared], "", 1000 + STALE_NS).replica == "r0"
    assert least_load(ASK, [mine, shared], "", 1001 + STALE_NS).replica == "r1"


@pytest.mark.parametrize(
    ("seen", "tried", "kind"),
    [
        ([], (), "unknown"),
        ([Replica("a", State.READY, frozenset({"other"}))], (), "unknown"),
        ([Replica("a", State.STARTING)], (), "unready"),  # it may turn out to serve it
        ([Replica("a", State.DOWN)], (), "unknown"),
        ([Replica("a", State.DOWN, M)], (), "unready"),
        ([Replica("a", State.DRAINING, M)], (), "unready"),
        ([Replica("a", State.READY, M)], ("a",), "tried"),
    ],
)
def test_no_route_says_whether_waiting_can_help(seen, tried, kind) -> None:
    answer = least_load(Request("m", frozenset(tried)), seen, "", 0)
    assert isinstance(answer, NoRoute)
    assert answer.kind == kind


@given(st.lists(st.booleans(), max_size=300))
def test_retries_never_exceed_the_savings_and_a_share_of_the_requests(retries) -> None:
    budget, spent = RetryBudget(saved=3, share=0.2, most=10), 0
    for count, wanted in enumerate(retries, 1):
        budget = budget.earn()
        if wanted and (left := budget.spend()) is not None:
            budget, spent = left, spent + 1
        assert spent <= 3 + 0.2 * count + 1e-6
        assert 0 <= budget.saved <= 10
