"""Arrivals."""

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.workload import Arrivals, parse_arrivals


@given(st.floats(0.05, 5), st.floats(0.1, 100), st.integers(0, 2**31))
def test_times_never_run_backwards(cv, rate, seed):
    times = list(islice(Arrivals("any", cv).times_s(rate, seed), 200))
    assert all(later >= earlier >= 0 for earlier, later in pairwise(times))


@pytest.mark.parametrize("text", ["poisson", "gamma:0.5", "gamma:3", "uniform"])
def test_gaps_have_the_mean_and_the_variation_asked_for(text):
    arrivals = parse_arrivals(text)
    gaps = np.diff(list(islice(arrivals.times_s(5.0, 3), 40_000)))
    assert gaps.mean() == pytest.approx(0.2, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(arrivals.cv, rel=0.06, abs=1e-6)


@pytest.mark.parametrize("text", ["", "gamma", "gamma:0", "gamma:x", "poisson:2", "weibull:1"])
def test_bad_arrivals_are_refused_with_a_remedy(text):
    with pytest.raises(SpecError, match="gamma:2"):
        parse_arrivals(text)
