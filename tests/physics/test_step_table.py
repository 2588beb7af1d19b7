"""Measured step times, at their points and between them, on floats and in whole numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.step_table import StepTable
from ridgeline.physics.straight_steps import FS

TABLE = StepTable((1, 4, 16, 64), (0.007, 0.010, 0.016, 0.040), 1e-4, 1e-6, 2e-9)


def test_the_curve_is_straight_between_its_points_and_goes_on_behind_the_last():
    assert TABLE.step_s(None, None, 4, 0.0) == pytest.approx(0.010)
    assert TABLE.step_s(None, None, 10, 0.0) == pytest.approx(0.013)
    assert TABLE.step_s(None, None, 112, 0.0) == pytest.approx(0.064)


def test_each_slope_is_added():
    alone_s = TABLE.step_s(4, 0.0)
    assert alone_s == pytest.approx(0.010 + 4e-4)
    assert TABLE.step_s(4, 1000.0) == pytest.approx(alone_s + 1e-3)
    assert TABLE.step_s(None, None, 4, 100.0) == pytest.approx(0.010 + 8e-7)


@given(
    st.integers(0, 64), st.integers(0, 100_000), st.integers(0, 2048), st.integers(0, 10_000_000)
)
def test_whole_numbers_say_what_floats_say(decodes: int, cached: int, prompts: int, pairs: int):
    if not decodes + prompts:
        return
    cached *= decodes > 0
    pairs *= prompts > 0
    floats_s = TABLE.step_s(
        decodes or None, cached or None, prompts or None, pairs / prompts if prompts else None
    )
    whole_fs = TABLE.in_fs.step_fs(decodes, cached, prompts, pairs)
    assert whole_fs / FS == pytest.approx(floats_s, abs=1e-12)


@given(st.integers(1, 64), st.integers(0, 10_000), st.integers(1, 500))
def test_a_run_of_decodes_is_its_steps(sequences: int, cached: int, steps: int):
    """The closed form that `simulate.pace` uses: a step's rows stay, its cached tokens grow."""
    table = TABLE.in_fs
    each = [table.step_fs(sequences, cached + sequences * done, 0, 0) for done in range(steps)]
    more = sequences * (steps * (steps - 1) // 2)
    once = table.step_fs(sequences, 0, 0, 0)
    assert sum(each) == steps * once + table.cached_fs * (steps * cached + more)


def test_a_slow_machine_is_slow_in_every_part():
    slow = TABLE.in_fs.slower(3.0)
    assert slow.step_fs(4, 1000, 7, 50) == 3 * TABLE.in_fs.step_fs(4, 1000, 7, 50)


@pytest.mark.parametrize(
    ("rows", "seconds", "slope", "says"),
    [
        ((1,), (0.01,), 0.0, "two points or more"),
        ((2, 4), (0.01, 0.02), 0.0, "the first of one row"),
        ((1, 4, 4), (0.01, 0.02, 0.03), 0.0, "rows ascend"),
        ((1, 4), (0.02, 0.01), 0.0, "no less time"),
        ((1, 4), (0.0, 0.01), 0.0, "takes time"),
        ((1, 4), (0.01, 0.02), -1e-9, "less than none"),
    ],
)
def test_what_cannot_be_a_curve_is_refused(rows, seconds, slope, says):
    with pytest.raises(ValueError, match=says):
        StepTable(rows, seconds, slope, 0.0, 0.0)
