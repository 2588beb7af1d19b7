import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.bench.spread import percentile, spread

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


@given(VALUES, st.floats(0, 100))
def test_a_percentile_is_numpys_linear_one(values, percent):
    ours = percentile(sorted(values), percent)
    assert ours == pytest.approx(float(np.percentile(values, percent)), rel=1e-9, abs=1e-6)


@given(VALUES)
def test_a_spread_is_ordered_and_complete(values):
    seen = spread(values)
    assert seen is not None
    assert min(values) <= seen.p50 <= seen.p90 <= seen.p95 <= seen.p99 <= seen.max == max(values)
    assert seen.mean == pytest.approx(float(np.mean(values)), rel=1e-9, abs=1e-6)
    assert seen.count == len(values)


def test_nothing_has_no_spread():
    assert spread([]) is None
