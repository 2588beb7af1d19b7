"""Fits: what was put in comes out, and few points do not run away."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.physics.fit import fit

X = np.linspace(1, 50, 40)


def line(values: np.ndarray) -> np.ndarray:
    return values[0] + values[1] * X


@settings(max_examples=30)
@given(st.floats(0.5, 20), st.floats(0.05, 5))
def test_noiseless_points_give_back_their_coefficients(a: float, b: float):
    truth = np.array([a, b])
    found = fit(line, line(truth), np.array([3.0, 0.5]), prior_sd=5.0, noise_sd=0.005)
    assert found.values == pytest.approx(truth, rel=0.01)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    chance, truth, held = np.random.default_rng(1), np.array([4.0, 0.3]), 0
    for _ in range(200):
        noisy = line(truth) * np.exp(0.08 * chance.standard_normal(len(X)))
        low, high = fit(line, noisy, np.array([4.0, 0.4]), prior_sd=3.0).interval(1)
        held += low <= truth[1] <= high
    assert 180 <= held <= 200


def test_an_outlier_weighs_little():
    measured = line(np.array([4.0, 0.3]))
    measured[7] *= 5
    found = fit(line, measured, np.array([3.0, 0.5]), prior_sd=3.0)
    assert found.values == pytest.approx([4.0, 0.3], rel=0.05)


def test_without_points_of_its_own_a_coefficient_stays_at_its_prior():
    measured = np.full(3, 2.0)
    found = fit(lambda v: np.full(3, v[0]), measured, np.array([1.0, 0.7]))
    assert found.values[1] == pytest.approx(0.7)
    assert found.values[0] == pytest.approx(2.0, rel=0.1)


def test_two_points_move_a_tight_prior_less_than_a_wide_one():
    measured = np.full(2, 2.0)
    tight = fit(lambda v: np.full(2, v[0]), measured, np.array([1.0]), prior_sd=0.05)
    wide = fit(lambda v: np.full(2, v[0]), measured, np.array([1.0]), prior_sd=1.0)
    assert 1 < tight.values[0] < wide.values[0] < 2.05
    assert tight.interval(0)[0] > 0
