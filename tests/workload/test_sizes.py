"""Sizes."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.workload import Sizes, parse_sizes


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("128", 128, 0),
        ("uniform:64:256", 160, 55.7),
        ("normal:500:50", 500, 50),
        ("lognormal:512:1.5", 512, 768),
    ],
)
def test_sizes_have_the_mean_and_the_deviation_asked_for(text, mean, deviation):
    drawn = list(islice(parse_sizes(text, where="").draw(np.random.default_rng(5)), 60_000))
    assert np.mean(drawn) == pytest.approx(mean, rel=0.03)
    assert np.std(drawn) == pytest.approx(deviation, rel=0.1, abs=1e-6)
    assert parse_sizes(text, where="").mean == mean


@given(st.floats(1, 100), st.floats(0, 500), st.integers(0, 2**31))
def test_no_size_is_below_one(mean, deviation, seed):
    sizes = Sizes("normal", mean, deviation).draw(np.random.default_rng(seed))
    assert min(islice(sizes, 500)) >= 1


@pytest.mark.parametrize("text", ["128", "uniform:64:256", "normal:500:50", "lognormal:512:1.5"])
def test_sizes_print_as_they_are_written(text):
    assert str(parse_sizes(text, where="")) == text


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "1.5", "nan", "uniform:9:1", "normal:5", "zipf:1:2", "normal:inf:2"]
)
def test_bad_sizes_are_refused_with_a_remedy(text):
    with pytest.raises(SpecError, match="--prompt-tokens"):
        parse_sizes(text, where="--prompt-tokens")
