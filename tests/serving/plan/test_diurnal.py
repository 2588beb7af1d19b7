"""A day's peak: closed forms against a day walked minute by minute."""

import math

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S093")
def test_three_times_the_mean_is_33_percent_busy_and_23_with_70_percent_headroom():
    values = ask("diurnal-peak", {"peak_over_mean": "3", "headroom": "0.7"}).answer.values
    assert values["bare_utilisation"].value == pytest.approx(0.33, rel=0.011)
    assert values["utilisation"].value == pytest.approx(0.23, rel=0.015)
    assert values["utilisation"].value == pytest.approx(0.7 / 3)
    assert values["sine_utilisation"].value == pytest.approx(0.67, rel=0.01)


@pytest.mark.parametrize("boot_min", [0, 10, 60, 240])
def test_a_day_walked_minute_by_minute_follows_the_closed_form(boot_min: int):
    day = 1440
    bump = [math.exp(4 * math.cos(2 * math.pi * (m - 720) / day)) for m in range(day)]
    mean = sum(bump) / day
    load = [one / mean for one in bump]
    ahead = [max(load[(m + k) % day] for k in range(boot_min + 1)) for m in range(day)]
    recovered = 1 - sum(ahead) / day / max(load)
    values = ask(
        "diurnal-peak",
        {
            "peak_over_mean": str(max(load)),
            "trough_over_mean": str(min(load)),
            "boot_s": f"{boot_min}min",
        },
    ).answer.values
    assert values["recoverable"].value == pytest.approx(recovered, rel=0.01)


def test_what_idles_at_the_trough_is_the_fleet_less_what_the_trough_needs():
    values = ask("diurnal-peak", {"peak_over_mean": "3", "trough_over_mean": "0.3"}).answer.values
    assert values["fleet"].value == 86  # 100 x 3 / (5 x 0.7) = 85.7
    assert values["idle_at_trough"].value == 86 - 9


@pytest.mark.parametrize("given", [{"peak_over_mean": "1"}, {"boot_s": "10 day"}])
def test_where_scaling_cannot_follow_it_wins_nothing_and_loses_nothing(given: dict[str, str]):
    values = ask("diurnal-peak", given).answer.values
    assert values["recoverable"].value == pytest.approx(0)
    assert values["boot_cost"].value <= 1
