"""Tails and quantiles against sums and against other ways to compute them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.chance import (
    binomial_quantile,
    binomial_tail,
    failing_rate,
    failing_rate_quantile,
    longest_over_mean_exponential,
    normal_within,
    poisson_tail,
    two_gangs_deadlock,
)


def summed_tail(trials: int, least: int, chance: float) -> float:
    return math.fsum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(least, trials + 1)
    )


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_a_binomial_tail_is_the_sum_of_its_terms(trials: int, least: int, chance: float):
    assert binomial_tail(trials, least, chance) == pytest.approx(
        summed_tail(trials, least, chance), rel=1e-9, abs=1e-300
    )


@given(st.floats(0.01, 50), st.integers(1, 80))
def test_a_poisson_tail_is_the_sum_of_its_terms(mean: float, least: int):
    terms = (
        math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(least, least + 400)
    )
    assert poisson_tail(mean, least) == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-300)


def test_the_tails_that_the_ledger_tells():
    assert binomial_tail(32, 14, 0.05) == pytest.approx(1.22e-10, rel=0.01)
    assert binomial_tail(9, 4, 0.05) == pytest.approx(6e-4, rel=0.1)
    assert poisson_tail(10, 30) == pytest.approx(2.51e-7, rel=0.01)
    assert poisson_tail(3, 9) == pytest.approx(0.004, rel=0.1)


@given(st.integers(1, 200), st.floats(0.001, 0.999), st.floats(0.01, 0.999))
def test_a_binomial_quantile_is_the_first_count_that_covers(
    trials: int, chance: float, confidence: float
):
    count = round(binomial_quantile(trials, chance, confidence))
    assert 1 - binomial_tail(trials, count + 1, chance) >= confidence or count == trials
    assert count == 0 or 1 - binomial_tail(trials, count, chance) < confidence


def test_four_concurrent_bursts_of_twenty_tenants_cover_999_of_1000_moments():
    assert binomial_quantile(20, 1 / 30, 0.999) == 4


def test_two_fails_and_a_pass_leave_almost_everything_possible():
    assert failing_rate(2, 1) == pytest.approx(0.6)
    assert failing_rate_quantile(0.025, 2, 1) == pytest.approx(0.19, abs=0.005)
    assert failing_rate_quantile(0.975, 2, 1) == pytest.approx(0.93, abs=0.005)


@given(st.integers(0, 30), st.integers(0, 30), st.floats(0.01, 0.99))
def test_a_quantile_of_the_failure_rate_leaves_its_share_below(
    failures: int, passes: int, confidence: float
):
    # For whole numbers the beta distribution is a binomial tail.
    rate = failing_rate_quantile(confidence, failures, passes)
    below = binomial_tail(failures + passes + 1, failures + 1, rate)
    assert below == pytest.approx(confidence, abs=1e-9)


def test_two_thirds_of_a_normal_lie_within_one_sigma():
    assert normal_within(1) == pytest.approx(0.6827, abs=1e-4)
    assert normal_within(np.array([1.0, 2.0])) == pytest.approx([0.6827, 0.9545], abs=1e-4)


@pytest.mark.parametrize("count", [1, 2, 8, 1000])
def test_the_harmonic_number_is_its_sum(count: int):
    summed = sum(1 / k for k in range(1, count + 1))
    assert longest_over_mean_exponential(count) == pytest.approx(summed, rel=1e-11)


def test_two_gangs_that_fit_never_deadlock_and_two_that_do_not_fit_at_all_always_do():
    assert two_gangs_deadlock(32, 64) == 0
    assert two_gangs_deadlock(65, 64) == 1
    assert two_gangs_deadlock(64, 64) == pytest.approx(1)
    assert two_gangs_deadlock(33, 64) == pytest.approx(33 / 65)


def test_what_does_not_converge_is_an_error_and_no_number():
    with pytest.raises(ArithmeticError):
        poisson_tail(1e15, 1e15)
