"""A rate that changes with time: the mean is kept, and so are the chances."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.serving.simulate.profile import DAY_S, parse_profile

PROFILES = ["diurnal:2.66", "diurnal:1", "step:300:3", "onoff:30:90", "onoff:10:0"]


@pytest.mark.parametrize("text", PROFILES)
@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_order_is_kept_and_nothing_is_lost(text, times):
    steady = sorted(times)
    warped = list(parse_profile(text).warped(steady))
    assert len(warped) == len(steady)
    assert warped == sorted(warped)


def test_a_step_is_as_asked_until_then_and_so_many_times_from_then_on():
    every_second = (float(second) for second in range(1000))
    times = list(parse_profile("step:100:4").warped(every_second))
    assert times[:101] == pytest.approx(list(range(101)))
    assert times[104] - times[100] == pytest.approx(1.0)


def test_a_day_has_its_peak_and_its_mean():
    profile = parse_profile("diurnal:2.66")
    rates = [rate for _, rate in profile.pieces]
    assert max(rates) == pytest.approx(2.66, rel=1e-6)
    assert sum(rates) / len(rates) == pytest.approx(1.0)
    assert rates.index(max(rates)) in (59, 60), "at 15 hours"
    two_days = list(profile.warped(float(n) for n in range(int(2 * DAY_S))))
    assert two_days[-1] == pytest.approx(2 * DAY_S, abs=10)


def test_bursts_keep_the_mean_and_are_silent_in_between():
    times = list(islice(parse_profile("onoff:30:90").warped(n / 2 for n in range(10_000)), 2_000))
    assert all(at_s % 120 < 30 for at_s in times)
    assert times[-1] == pytest.approx(1000, abs=120)


@pytest.mark.parametrize(
    "text", ["", "diurnal", "diurnal:0.5", "diurnal:99", "step:0:2", "step:9", "onoff:0:5", "x:1"]
)
def test_what_is_none_is_an_error(text):
    with pytest.raises(SpecError, match="no profile"):
        parse_profile(text)
