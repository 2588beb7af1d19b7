"""The draw in C++ beside the portable one, and that a row depends on nothing but itself."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ways_to_draw import draw_rows, draws, probabilities

from ridgeline.kernels.choose import PORTABLE
from ridgeline.kernels.draws import Row
from ridgeline.kernels.library import levels

pytestmark = pytest.mark.skipif(not levels(), reason="needs a C++ compiler: no kernels were built")
every_level = pytest.mark.parametrize("level", levels())

RULES = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.0, 0.05, 0.6, 1.0, 1.9, 7.0]),
    st.sampled_from([0.0, 0.0, 0.01, 0.2, 1.0]),
    st.sampled_from([1.0, 1.0, 0.999, 0.9, 0.4, 0.0]),
    st.sampled_from([0, 0, 1, 2, 50, 400, 3000]),
    st.sampled_from([-1, -1, 0, 1, 5, 20]),
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, list[Row]]:
    """A step's logits, of many kinds, and its rows' rules."""
    rules = draw(st.lists(RULES, min_size=1, max_size=9))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (len(rules), draw(st.sampled_from([1, 3, 97, 128, 511, 512, 2000, 4999])))
    logits = random.standard_normal(shape) * draw(st.sampled_from([0.01, 1.0, 4.0, 60.0]))
    kind = draw(st.sampled_from(["smooth", "coarse", "masked", "steep"]))
    if kind == "coarse":
        logits = np.round(logits)
    elif kind == "masked":
        logits[random.random(shape) < 0.9] = -np.inf
        logits[:, random.integers(shape[1])] = 2.0
    elif kind == "steep":
        logits -= 3 * np.log1p(random.permutation(shape[1]))
    return logits.astype(np.float32), [Row(at, -1, *each) for at, each in enumerate(rules)]


def may_be_drawn(logits: Any, row: Row, token: int) -> bool:
    """Whether the chance is the token's, or within rounding of its ends, or a rule is."""
    probability, margin = probabilities(logits, row)
    end = probability[: token + 1].sum()
    begin = end - probability[token]
    return margin < 1e-6 or begin - 2e-6 <= row.chance <= end + 2e-6


@every_level
@settings(deadline=None, max_examples=150)
@given(steps())
def test_it_draws_what_the_portable_way_draws(level: str, step: tuple[Any, list[Row]]) -> None:
    logits, rows = step
    for row, fast, plain in zip(
        rows, draw_rows(level, logits, rows), draw_rows(PORTABLE, logits, rows), strict=True
    ):
        assert fast.peak == plain.peak
        if fast.token != plain.token:
            assert row.temperature > 0
            assert may_be_drawn(logits[row.row], row, fast.token)
            assert may_be_drawn(logits[row.row], row, plain.token)
        assert list(fast.likeliest) == list(plain.likeliest)
        assert fast.normaliser == pytest.approx(plain.normaliser, abs=2e-6, rel=1e-6)


@every_level
@settings(deadline=None, max_examples=60)
@given(steps())
def test_a_row_depends_on_nothing_but_itself(level: str, step: tuple[Any, list[Row]]) -> None:
    logits, rows = step
    together = draw_rows(level, logits, rows, threads=2)
    assert together == draw_rows(level, logits, rows[::-1], threads=3)[::-1]
    assert together == [draw_rows(level, logits, [row])[0] for row in rows]


@every_level
@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 63, 127, 128, 500])
def test_a_broken_row_yields_its_peak_and_no_token(level: str, broken: float, at: int) -> None:
    logits = np.random.default_rng(1).standard_normal((3, 501)).astype(np.float32)
    logits[1, at] = broken
    logits[2] = -np.inf
    fine, other, empty = draw_rows(level, logits, [Row(at, top_p=0.9) for at in range(3)])
    assert fine.token == int(logits[0].argmax())
    assert (other.token, empty.token) == (-1, -1)
    np.testing.assert_equal(other.peak, broken)
    assert empty.peak == -np.inf


@every_level
def test_adjusted_rows_are_drawn_from_and_the_others_described(level: str) -> None:
    logits = np.zeros((2, 40), np.float32)
    logits[1, 7] = 3
    adjusted = np.full((1, 40), -np.inf, np.float32)
    adjusted[0, 9] = 1
    rows = [Row(0), Row(1, 0, alternatives=1)]
    first, second = draws(level, 40).draw(logits, adjusted, rows)
    assert (first.token, first.peak) == (0, 0)
    assert (second.token, second.peak, second.likeliest) == (9, 1, [7])
    assert second.normaliser == pytest.approx(np.log(39 + np.exp(3)))
