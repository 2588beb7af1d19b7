"""The rules of routing, alone: no gateway, no clock."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.route import (
    FULL_KV,
    OURS,
    RULES,
    STALE_NS,
    NoRoute,
    Replica,
    Request,
    Route,
    View,
    route,
)
from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import Saturation

M = frozenset({"m"})
ASK = Request("m")
NAMES = [f"r{i}" for i in range(8)]
HERD = ("prefix-sticky", "least-load", "round-robin")  # rules that are even to one request

fleets = st.lists(
    st.builds(
        Replica,
        id=st.sampled_from(NAMES),
        state=st.sampled_from(State),
        models=st.sampled_from([None, M, frozenset({"other"}), frozenset({"m", "other"})]),
        running=st.integers(0, 100),
        others=st.integers(0, 100),
        reported_ns=st.integers(0, 10**11),
        slots=st.integers(1, 200),
        uncached_tokens=st.integers(0, 10**6),
        kv_usage=st.one_of(st.none(), st.floats(0, 1)),
        waiting=st.one_of(st.none(), st.integers(0, 100)),
        prompt_tokens=st.integers(0, 10**6),
        adapters=st.sampled_from([frozenset(), frozenset({"lora"})]),
    ),
    max_size=8,
    unique_by=lambda one: one.id,
)
anyone = st.sampled_from(["", "r0", "r3", "r7", "gone"])
requests = st.builds(
    Request,
    model=st.just("m"),
    tried=st.frozensets(anyone),
    input_tokens=st.integers(1, 10**5),
    warm_tokens=st.dictionaries(anyone, st.integers(0, 10**5)),
    continues=st.booleans(),
    session=st.sampled_from(["", "one", "another"]),
    adapter=st.sampled_from([None, "lora"]),
    chance=st.integers(0, 2**64 - 1),
)
views = st.builds(
    View,
    rule=st.sampled_from(sorted(RULES)),
    request=requests,
    replicas=fleets,
    last=anyone,
    now_ns=st.integers(0, 10**11),
    saturation=st.builds(Saturation, tokens=st.floats(0, 1e6)),
)
rules = pytest.mark.parametrize("rule", OURS)


def fleet(*running: int, slots: int = 256) -> list[Replica]:
    return [Replica(f"r{i}", State.READY, M, n, slots=slots) for i, n in enumerate(running)]


def ask(
    rule: str, seen: list[Replica], last: str = "", now_ns: int = 0, **request: object
) -> Route:
    answer = route(View(rule, Request("m", **request), seen, last, now_ns))
    assert isinstance(answer, Route), answer
    return answer


@given(views)
def test_only_a_ready_untried_replica_with_the_model_is_chosen(view: View) -> None:
    answer = route(view)
    able = {r.id for r in view.replicas if r.state is State.READY and r.models and "m" in r.models}
    able -= view.request.tried
    assert (answer.replica in able) if isinstance(answer, Route) else not able
    assert answer.reason


@given(views)
def test_a_recorded_view_decides_the_same_again(view: View) -> None:
    written = msgspec.json.encode(view)
    first = route(view)
    assert route(msgspec.json.decode(written, type=View)) == first
    if isinstance(first, Route):
        assert msgspec.json.decode(msgspec.json.encode(first), type=Route) == first


@given(views, st.randoms(use_true_random=False))
def test_the_order_in_which_replicas_are_listed_does_not_matter(view: View, random) -> None:
    one = route(view)
    other = route(replace(view, replicas=random.sample(view.replicas, len(view.replicas))))
    if isinstance(one, Route):
        assert (one.replica, one.reason) == (other.replica, other.reason)


@given(views)
def test_a_full_replica_gets_nothing_while_another_has_room(view: View) -> None:
    answer = route(view)
    if isinstance(answer, Route):
        by_name = {one.id: one for one in view.replicas}
        able = [by_name[score.replica] for score in answer.scores]
        full = [one.is_full(view.now_ns) for one in able]
        assert not any(full) or all(full)


@given(views)
def test_the_scores_say_what_was_known_of_each_that_could_be_chosen(view: View) -> None:
    answer = route(view)
    if isinstance(answer, Route):
        for score in answer.scores:
            one = next(r for r in view.replicas if r.id == score.replica)
            assert score.load == one.load(view.now_ns)
            assert score.backlog_tokens == one.uncached_tokens
            assert 0 <= score.warm_tokens <= view.request.input_tokens
        assert answer.replica in [score.replica for score in answer.scores]


@given(views)
def test_least_load_never_passes_over_a_less_loaded_replica(view: View) -> None:
    answer = route(replace(view, rule="least-load"))
    if isinstance(answer, Route):
        loads = {score.replica: score.load for score in answer.scores}
        assert loads[answer.replica] == min(loads.values())


@pytest.mark.parametrize("rule", HERD)
@given(st.integers(1, 8), st.integers(1, 64), st.integers(1, 5000))
def test_a_herd_in_one_instant_spreads_evenly(rule, replicas, herd, tokens) -> None:
    seen = fleet(*[0] * replicas)
    last = ""
    for _ in range(herd):
        answer = ask(rule, seen, last, input_tokens=tokens)
        last = answer.replica
        next(r for r in seen if r.id == last).dispatched(answer.uncached_tokens)
    counts = [r.running for r in seen]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("continues", [False, True])
@rules
def test_a_thousand_dispatches_in_one_instant_see_each_other(rule: str, continues: bool) -> None:
    """Also of one prompt that is warm on one replica, in one session."""
    seen, last, chance = fleet(*[0] * 8), "", 1
    for number in range(1000):
        chance = chance * 6364136223846793005 % 2**64  # any well mixed sequence
        warm = {"r3": 900} if number else {}
        asked = {"input_tokens": 1000, "warm_tokens": warm, "continues": continues}
        answer = ask(rule, seen, last, session="s", chance=chance, **asked)
        last = answer.replica
        next(r for r in seen if r.id == last).dispatched(answer.uncached_tokens)
    assert sum(one.running for one in seen) == 1000
    assert max(one.running for one in seen) <= 1.3 * 1000 / 8


def test_a_herd_fills_the_emptier_replicas_first() -> None:
    seen = fleet(6, 0, 3)
    for _ in range(9):
        chosen = ask("least-load", seen).replica
        next(r for r in seen if r.id == chosen).dispatched()
    assert [r.running for r in seen] == [6, 6, 6]


def test_equal_loads_take_turns() -> None:
    seen, last, order = fleet(2, 2, 2), "", []
    for _ in range(6):
        last = ask("least-load", seen, last).replica
        order.append(last)
    assert order == ["r0", "r1", "r2", "r0", "r1", "r2"]


@given(st.lists(st.sampled_from(State), max_size=200))
def test_turns_stay_fair_to_those_who_stay_while_another_comes_and_goes(states) -> None:
    seen, last, counts = fleet(0, 0, 0), "", Counter()
    for seen[1].state in states:
        last = ask("round-robin", seen, last).replica
        counts[last] += 1
    assert abs(counts["r0"] - counts["r2"]) <= 1


def test_load_from_elsewhere_counts_only_while_the_report_is_fresh() -> None:
    mine, shared = fleet(2, 0)
    shared.others, shared.reported_ns = 5, 1000
    assert ask("least-load", [mine, shared], "", 1000 + STALE_NS).replica == "r0"
    assert ask("least-load", [mine, shared], "", 1001 + STALE_NS).replica == "r1"


@rules
def test_a_new_replica_without_any_report_gets_requests(rule: str) -> None:
    """Missing data is missing: it is neither full nor loaded."""
    old, new = fleet(3, 0)
    old.kv_usage, old.reported_ns, old.others = 0.5, 10**12, 2
    chosen = {
        ask(rule, [old, new], "r0", 10**12, session=f"s{n}", chance=n).replica for n in range(64)
    }
    assert "r1" in chosen


def test_a_replica_whose_cache_is_full_is_passed_over_until_the_report_is_old() -> None:
    crowded, other = fleet(0, 9)
    crowded.kv_usage = FULL_KV
    assert ask("least-load", [crowded, other]).replica == "r1"
    assert ask("least-load", [crowded, other], "", STALE_NS + 1).replica == "r0"


def test_where_all_are_full_the_rule_decides_among_all() -> None:
    assert ask("least-load", fleet(5, 4, slots=4)).replica == "r1"


def test_power_of_two_takes_the_less_loaded_of_the_two_it_drew() -> None:
    seen = fleet(*range(8))
    drawn = [ask("power-of-two", seen, chance=chance << 32 | chance) for chance in range(1000)]
    counts = Counter(answer.replica for answer in drawn)
    assert counts["r7"] == 0, "the most loaded loses against everybody"
    assert counts["r0"] > counts["r3"]


def test_a_session_stays_and_a_stranger_to_it_changes_nothing() -> None:
    seen = fleet(0, 0, 0, 0)
    homes = {f"s{n}": ask("session", seen, session=f"s{n}").replica for n in range(100)}
    assert set(homes.values()) == {"r0", "r1", "r2", "r3"}
    bigger = fleet(0, 0, 0, 0, 0)
    moved = {s for s in homes if ask("session", bigger, session=s).replica != homes[s]}
    assert 0 < len(moved) < 45
    assert all(ask("session", bigger, session=s).replica == "r4" for s in moved)


def test_a_session_leaves_a_replica_with_over_its_bound_of_load() -> None:
    home = ask("session", fleet(0, 0, 0, 0), session="mine").replica
    seen = fleet(4, 4, 4, 4)
    assert ask("session", seen, session="mine").replica == home
    next(r for r in seen if r.id == home).running = 9
    assert ask("session", seen, session="mine").replica != home


def test_a_session_comes_back_to_its_place_once_that_is_ready_again() -> None:
    seen = fleet(0, 0, 0)
    home = ask("session", seen, session="mine").replica
    place = next(r for r in seen if r.id == home)
    place.state = State.DOWN
    away = ask("session", seen, session="mine")
    assert away.replica != home
    assert "before it on the ring" in away.reason
    place.state = State.READY
    assert ask("session", seen, session="mine").replica == home


def test_without_a_session_the_session_rule_is_least_load() -> None:
    assert ask("session", fleet(2, 1)).replica == "r1"


def test_an_adapter_draws_its_requests_to_where_it_is_loaded() -> None:
    seen = fleet(0, 1)
    seen[1].adapters = frozenset({"lora"})
    assert ask("prefix-sticky", seen, input_tokens=100).replica == "r0"
    assert ask("prefix-sticky", seen, input_tokens=100, adapter="lora").replica == "r1"


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
    answer = route(View("least-load", Request("m", frozenset(tried)), seen))
    assert isinstance(answer, NoRoute)
    assert answer.kind == kind
