"""The formulas of other systems: examples computed by hand, and laws."""

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.route import RULES, NoRoute, Replica, Request, Route, View, route
from ridgeline.serving.policy.route_rules import CACHED, THEIRS, TIMES, UNEVEN
from ridgeline.serving.policy.states import State
from ridgeline.serving.spec import Routing

M = frozenset({"m"})

seen_replicas = st.lists(
    st.builds(
        Replica,
        id=st.sampled_from(["r0", "r1", "r2", "r3"]),
        state=st.just(State.READY),
        models=st.just(M),
        running=st.integers(0, 200),
        uncached_tokens=st.integers(0, 10**5),
        prompt_tokens=st.integers(0, 10**5),
        kv_usage=st.floats(0, 0.9),
        waiting=st.integers(0, 50),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.id,
)
prompts = st.integers(1, 10**5)
warmth = st.dictionaries(st.sampled_from(["r0", "r1", "r2", "r3"]), st.integers(0, 10**5))
chances = st.integers(0, 2**64 - 1)
theirs = pytest.mark.parametrize("rule", THEIRS)


def replica(number: int, running: int = 0, **known: object) -> Replica:
    return Replica(f"r{number}", State.READY, M, running, **known)


def ask(rule: str, seen: Sequence[Replica], tokens: int, warm: dict[str, int], chance=0) -> Route:
    request = Request("m", input_tokens=tokens, warm_tokens=warm, chance=chance)
    answer = route(View(rule, request, seen))
    assert not isinstance(answer, NoRoute), answer
    return answer


def test_a_spec_may_name_each_rule_that_there_is() -> None:
    assert set(get_args(Routing.model_fields["policy"].annotation)) == set(RULES)


# sglang


@pytest.mark.parametrize(
    ("loads", "warm", "chosen", "said"),
    [
        ((0, 0), 301, "r1", "even, and has 30% of the prompt"),
        ((5, 5), 300, "r0", "30% of the prompt is cached at best"),  # it has to be more
        ((0, 64), 900, "r1", "even, and has 90%"),  # 64 more are not more than 64
        ((0, 65), 900, "r0", "uneven, 0 to 65 requests"),
        ((130, 195), 900, "r1", "even, and has 90%"),  # 195 are not more than 1.5 times 130
        ((130, 196), 900, "r0", "uneven, 130 to 196 requests"),
        ((7, 3), 0, "r1", "0% of the prompt is cached at best: 3 requests"),
    ],
)
def test_sglangs_thresholds(loads, warm, chosen, said) -> None:
    seen = [replica(number, load) for number, load in enumerate(loads)]
    answer = ask("sglang-cache-aware", seen, 1000, {"r1": warm})
    assert answer.replica == chosen
    assert said in answer.reason


@given(seen_replicas, prompts, warmth)
def test_sglang_sends_to_the_fewest_or_to_the_longest_match(seen, tokens, warm) -> None:
    answer = ask("sglang-cache-aware", seen, tokens, warm)
    by_name = {score.replica: score for score in answer.scores}
    loads = [score.load for score in answer.scores]
    best = max(score.warm_tokens for score in answer.scores)
    uneven = max(loads) - min(loads) > UNEVEN and max(loads) > TIMES * min(loads)
    if uneven or best <= CACHED * tokens:
        assert by_name[answer.replica].load == min(loads)
    else:
        assert by_name[answer.replica].warm_tokens == best


# Dynamo


def test_dynamos_cost_computed_by_hand() -> None:
    """In tokens: what is prefilled there and new here less what is cached, and all that is held."""
    busy = replica(0, 2, uncached_tokens=300, prompt_tokens=1000)
    idle = replica(1, 1, uncached_tokens=0, prompt_tokens=800)
    answer = ask("dynamo-kv", [busy, idle], 1000, {"r0": 600})
    # r0: 300 + 1000 - 600 = 700 to prefill, 1000 + 1000 held; r1: 1000 and 800 + 1000.
    assert {score.replica: score.cost for score in answer.scores} == {"r0": 2700, "r1": 2800}
    assert answer.replica == "r0"
    assert answer.reason == "costs 2,700 tokens, least of 2"


def test_dynamo_leaves_a_match_for_what_weighs_more() -> None:
    busy = replica(0, 2, uncached_tokens=500, prompt_tokens=1000)
    idle = replica(1, 1, uncached_tokens=0, prompt_tokens=800)
    assert ask("dynamo-kv", [busy, idle], 1000, {"r0": 600}).replica == "r1"


@given(seen_replicas, prompts, warmth, chances)
def test_dynamo_never_takes_more_than_the_least_cost(seen, tokens, warm, chance) -> None:
    answer = ask("dynamo-kv", seen, tokens, warm, chance)
    by_name = {score.replica: score.cost for score in answer.scores}
    assert by_name[answer.replica] == min(by_name.values())


@given(seen_replicas, prompts, warmth, st.integers(1, 10**5))
def test_dynamo_never_likes_a_replica_better_for_more_work(seen, tokens, warm, more) -> None:
    chosen = ask("dynamo-kv", seen, tokens, warm).replica
    for one in seen:
        if one.id != chosen:
            one.prompt_tokens += more
            one.uncached_tokens += more
    assert ask("dynamo-kv", seen, tokens, warm).replica == chosen


# llm-d


def test_llm_ds_scores_computed_by_hand() -> None:
    seen = [
        replica(0, waiting=0, kv_usage=0.9),
        replica(1, waiting=4, kv_usage=0.5),
        replica(2, waiting=1, kv_usage=0.2),
    ]
    answer = ask("llm-d-scorers", seen, 1000, {"r1": 800})
    # r0: 2 x 1 + 2 x 0.1; r1: 2 x 0 + 2 x 0.5 + 3 x 0.8; r2: 2 x 3/4 + 2 x 0.8.
    assert {s.replica: 7000 - s.cost for s in answer.scores} == {"r0": 2200, "r1": 3400, "r2": 3100}
    assert answer.replica == "r1"
    assert answer.reason == "scores 3.40 of 7, most of 3"


def test_llm_d_gives_nothing_for_what_was_not_reported() -> None:
    silent, full = replica(0), replica(1, waiting=9, kv_usage=0.9)
    assert ask("llm-d-scorers", [silent, full], 1000, {}).replica == "r1"


@given(seen_replicas, prompts, warmth, chances)
def test_llm_ds_choice_lacks_least(seen, tokens, warm, chance) -> None:
    answer = ask("llm-d-scorers", seen, tokens, warm, chance)
    lacking = {score.replica: score.cost for score in answer.scores}
    assert lacking[answer.replica] == min(lacking.values())
    assert all(0 <= cost <= 7000 for cost in lacking.values())


# production-stack


@given(seen_replicas, prompts, warmth, chances)
def test_production_stack_looks_at_matches_alone(seen, tokens, warm, chance) -> None:
    answer = ask("production-stack-prefix", seen, tokens, warm, chance)
    matches = {score.replica: score.warm_tokens for score in answer.scores}
    assert matches[answer.replica] == max(matches.values())
    for one in seen:
        one.running = 0
    assert ask("production-stack-prefix", seen, tokens, warm, chance).replica == answer.replica


# all of them


@theirs
def test_who_draws_says_so_and_reaches_each_equal(rule: str) -> None:
    seen = [replica(number, waiting=0, kv_usage=0.1) for number in range(3)]
    chosen = {ask(rule, seen, 100, {}, chance).replica for chance in range(64)}
    assert chosen == ({"r0", "r1", "r2"} if RULES[rule].draws else {"r0"})


@theirs
@given(seen=seen_replicas, tokens=prompts, warm=warmth, chance=chances)
def test_chance_matters_to_those_who_draw_alone(rule, seen, tokens, warm, chance) -> None:
    if not RULES[rule].draws:
        assert ask(rule, seen, tokens, warm, chance) == ask(rule, seen, tokens, warm)
