"""A thousand canaries: the same version is rarely sent back, a slower one nearly always."""

import random
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.gate import (
    Arm,
    Criteria,
    Moments,
    Verdict,
    judge,
    moments,
    sample_size,
    stratum,
)

CRITERIA = Criteria()
SHARE = 0.25
SPREAD = 0.5  # of the logarithm of a time: p99 is 3.2 times the median


def canary(seed: int, *, slower: float = 1.0, errors: float = 0.01, more_errors: float = 1.0):
    """The verdict of one canary that is looked at after every request of the new version."""
    chance = random.Random(seed)
    planned = sample_size(SPREAD**2, SHARE, CRITERIA)
    arms = {"old": Arm(), "new": Arm()}
    while True:
        name = "new" if chance.random() < SHARE else "old"
        is_new = name == "new"
        arm = arms[name]
        ttft = exp(chance.gauss(0, SPREAD)) * (slower if is_new else 1.0)
        failed = chance.random() < errors * (more_errors if is_new else 1.0)
        tpot = exp(chance.gauss(0, SPREAD / 4))
        arms[name] = arm.failed() if failed else arm.saw(0, ttft, tpot)
        if is_new:
            found = judge(arms["old"], arms["new"], planned, CRITERIA)
            if found.verdict is not Verdict.WAIT:
                return found


def test_of_1000_canaries_of_the_same_version_at_most_5_percent_go_back() -> None:
    back = sum(canary(seed).verdict is Verdict.FAIL for seed in range(1000))
    assert back <= 50
    assert back == 9  # as decisions/0024 says


def test_of_1000_that_are_20_percent_slower_at_least_95_percent_go_back() -> None:
    found = [canary(seed, slower=1.2) for seed in range(1000)]
    back = [one for one in found if one.verdict is Verdict.FAIL]
    assert len(back) >= 950
    assert len(back) == 969  # as decisions/0024 says
    assert all("TTFT" in one.reason for one in back[:20])


def test_a_version_that_fails_often_goes_back_and_few_failures_are_no_proof() -> None:
    back = [canary(seed, more_errors=10).verdict is Verdict.FAIL for seed in range(100)]
    assert sum(back) >= 95
    one = judge(Arm(100), Arm(40, errors=1), 200, CRITERIA)
    assert one.verdict is Verdict.WAIT


def test_a_gate_with_little_to_see_does_not_judge() -> None:
    slow = Arm(29, 29, {0: moments([9.0, 10.0, 11.0] * 9)})
    fast = Arm(1000, 0, {0: moments([0.9, 1.0, 1.1] * 300)})
    assert judge(fast, slow, 200, CRITERIA).verdict is Verdict.WAIT
    assert judge(Arm(), Arm(), 200, CRITERIA).verdict is Verdict.WAIT
    assert judge(Arm(), Arm(250), 200, CRITERIA).verdict is Verdict.PASS


def test_times_that_never_vary_are_compared_as_they_are() -> None:
    same, slower = ({0: moments([value] * 50)} for value in (1.0, 1.3))
    assert judge(Arm(50, 0, same), Arm(50, 0, same), 40, CRITERIA).verdict is Verdict.PASS
    assert judge(Arm(50, 0, same), Arm(50, 0, slower), 40, CRITERIA).verdict is Verdict.FAIL


def test_what_a_rollout_says_beforehand_and_the_guide_prints() -> None:
    sizes = [sample_size(0.25, share, CRITERIA) for share in (0.05, 0.25, 0.5)]
    assert sizes == [384, 486, 729]


def test_more_spread_a_smaller_effect_and_a_larger_share_need_more_requests() -> None:
    usual = sample_size(0.25, 0.1, CRITERIA)
    assert sample_size(0.5, 0.1, CRITERIA) > usual
    assert sample_size(0.25, 0.5, CRITERIA) > usual  # the old version has fewer to compare with
    assert sample_size(0.25, 0.1, Criteria(effect=1.1)) > 3 * usual
    assert sample_size(0.0, 0.1, CRITERIA) == CRITERIA.least


times = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=50)


@given(times)
def test_moments_are_those_of_all_values_at_once(values) -> None:
    from math import log
    from statistics import fmean, variance

    found = moments(values)
    logarithms = [log(value) for value in values]
    assert found.mean == pytest.approx(fmean(logarithms), abs=1e-9)
    assert found.variance == pytest.approx(variance(logarithms), abs=1e-9)
    assert found == Moments(found.count, found.mean, found.squares)


@given(times, times, st.floats(1.01, 100))
def test_a_faster_version_is_never_worse(old, new, factor) -> None:
    fast, slow = {0: moments(min(old) / factor for _ in new)}, {0: moments(old)}
    found = judge(Arm(100, 0, slow, slow), Arm(100, 0, fast, fast), 50, CRITERIA)
    assert found.verdict is not Verdict.FAIL


def loaded(seed: int, *, slower: float = 1.0):
    """As `canary`, where the new version's one replica is twice as busy and its cache is cold."""
    chance = random.Random(seed)
    planned = sample_size(0.04, SHARE, CRITERIA)
    arms = {"old": Arm(), "new": Arm()}
    while True:
        is_new = chance.random() < SHARE
        name = "new" if is_new else "old"
        others = chance.randrange(4, 16) if is_new else chance.randrange(2, 10)
        tokens = 1000 if is_new and chance.random() < 0.5 else 100
        spent = exp(chance.gauss(0, 0.2)) * (0.05 + 0.02 * others + tokens / 4000)
        group = stratum(tokens, others)
        arms[name] = arms[name].saw(group, spent * (slower if is_new else 1.0), None)
        if is_new:
            found = judge(arms["old"], arms["new"], planned, CRITERIA)
            if found.verdict is not Verdict.WAIT:
                return found.verdict


def test_a_busier_replica_with_a_cold_cache_is_not_a_worse_version() -> None:
    same = [loaded(seed) for seed in range(200)]
    slower = [loaded(seed, slower=1.2) for seed in range(200)]
    assert same.count(Verdict.FAIL) <= 10
    assert slower.count(Verdict.FAIL) >= 190


def test_where_no_requests_are_alike_nothing_is_known() -> None:
    times = moments([1.0, 1.1, 0.9] * 100)
    busy, idle = stratum(100, 30), stratum(100, 1)
    apart = judge(Arm(300, 0, {idle: times}), Arm(300, 0, {busy: times}), 200, CRITERIA)
    assert apart.gates[0].ratio is None
    few = {idle: times, busy: moments([1.0, 1.1])}
    found = judge(Arm(300, 0, few), Arm(300, 0, {busy: times}), 200, CRITERIA)
    assert found.verdict is Verdict.WAIT
    assert "alike" in found.reason
