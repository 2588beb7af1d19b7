"""What a step is expected to take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.step_times import StepTimes, bucket


def seen(*steps: tuple[int, float], times: int = 3) -> StepTimes:
    found = StepTimes()
    for rows, took_s in steps:
        for _ in range(times):
            found.saw(rows, took_s)
    return found


def test_nothing_is_known_before_the_third_measurement() -> None:
    assert seen((1, 0.01), times=2).of(1) is None
    assert seen((1, 0.01)).of(1) == 0.01


def test_one_slow_step_is_not_believed() -> None:
    times = seen((1, 0.01))
    times.saw(1, 5.0)
    assert times.of(1) == 0.01


def test_only_the_last_nine_count() -> None:
    assert seen((1, 0.01), (1, 0.02), times=9).of(1) == 0.02


def test_between_known_widths_lies_the_line_and_beyond_the_widest_it_goes_on() -> None:
    times = seen((2, 0.010), (4, 0.014), (8, 0.022))
    assert times.of(3) == pytest.approx(0.012)
    assert times.of(6) == pytest.approx(0.018)
    assert times.of(16) == pytest.approx(0.010 + 14 * 0.002)
    assert times.of(1) == 0.010


def test_a_wider_step_than_the_only_known_one_is_taken_for_as_fast() -> None:
    assert seen((4, 0.01)).of(64) == 0.01


def test_what_is_tried_next_is_at_most_twice_what_is_known() -> None:
    assert StepTimes().reach == 0
    assert seen((4, 0.01), (6, 0.01)).reach == 12


def test_a_wider_step_is_never_expected_to_be_faster_than_a_narrow_one() -> None:
    assert seen((2, 0.02), (4, 0.01)).of(64) == 0.02


def test_what_was_not_measured_for_long_is_unknown_again() -> None:
    times = seen((16, 0.02), (80, 0.06))
    for _ in range(999):
        times.saw(16, 0.02)
    assert times.of(80) == 0.06
    for _ in range(3):
        times.saw(16, 0.02)
    assert times.of(80) == 0.02, "as fast as the only known one, so that it is tried"


@given(st.integers(1, 4_096))
def test_widths_that_count_as_one_are_a_quarter_apart_at_the_most(rows: int) -> None:
    assert rows <= bucket(rows) <= rows * 1.25
    assert bucket(bucket(rows)) == bucket(rows)


@given(st.lists(st.tuples(st.integers(1, 600), st.floats(1e-4, 1.0)), max_size=60))
def test_any_expectation_is_a_positive_time(steps: list[tuple[int, float]]) -> None:
    times = seen(*steps, times=1)
    for rows in (1, 7, 100, 700):
        expected = times.of(rows)
        assert expected is None or expected > 0
