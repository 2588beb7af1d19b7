"""Running to zero against a simulation of arrivals, stops and starts."""

import numpy as np
import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "scale-to-zero"
PRICE = {"h100-sxm.price_usd_per_s": "3USD/h"}
GIVEN = {
    "start": "60s", "keep": "200s", "idle_share": "0",
    "cost_per_start_usd": "0.02USD", "wait_usd_per_s": "0.002USD/s",
}  # fmt: skip


def simulated(rate, start, keep, cycles=60_000, seed=1):
    """Random arrivals: seconds stopped, cold starts and waiting, each a request."""
    random = np.random.default_rng(seed)
    now = ready = stops = 0.0  # the replica serves from `ready` and stops at `stops`
    off = waited = 0.0
    cold = 0
    for gap in random.exponential(1 / rate, cycles):
        now += gap
        if now > stops:
            off += now - stops
            cold += 1
            ready = now + start
        waited += max(0.0, ready - now)
        stops = max(now, ready) + keep
    return off / now, cold / cycles, waited / cycles


@pytest.mark.proves("S191")
@pytest.mark.parametrize("per_hour", [2, 20, 60, 200])
def test_stopped_time_cold_starts_and_waits_equal_a_simulation(per_hour):
    asked = ask(TOPIC, GIVEN | {"requests_per_s": f"{per_hour}requests/h"}, PRICE)
    values = asked.answer.values
    off, cold, wait = simulated(per_hour / 3600, 60, 200)
    assert values["stopped_share"].value == pytest.approx(off, rel=0.02, abs=0.002)
    assert values["cold_share"].value == pytest.approx(cold, rel=0.03, abs=0.002)
    assert values["mean_wait_s"].value == pytest.approx(wait, rel=0.03, abs=0.1)


def saved_per_s(rate):
    """What a simulated replica saves a second, waiting and starts priced in."""
    off, cold, wait = simulated(rate, 60, 200)
    return off * 3 / 3600 - rate * (cold * 0.02 + wait * 0.002)


@pytest.mark.proves("S191")
def test_below_the_stated_rate_zero_is_cheaper_in_a_simulation_and_above_it_is_not():
    answer = ask(TOPIC, GIVEN, PRICE).answer
    even = answer.values["break_even_per_s"].value
    assert saved_per_s(even * 0.9) > 0 > saved_per_s(even * 1.1)
    assert "below {break_even_per_s} zero is cheaper" in answer.says


@pytest.mark.proves("S191")
def test_the_decision_turns_at_the_break_even_whatever_the_keep_alive():
    even = ask(TOPIC, GIVEN, PRICE).answer.values["break_even_per_s"].value
    for keep in ("10s", "600s"):
        for factor, goes in ((0.99, True), (1.01, False)):
            rate = {"requests_per_s": f"{even * factor * 3600}requests/h", "keep": keep}
            answer = ask(TOPIC, GIVEN | rate, PRICE).answer
            assert answer.ok is goes
            assert (answer.values["saved_usd_per_s"].value > 0) is goes


@pytest.mark.proves("S191")
def test_the_wait_added_is_at_most_one_start_and_falls_with_the_rate():
    waits = [
        ask(TOPIC, GIVEN | {"requests_per_s": f"{rate}requests/h"})
        .answer.values["mean_wait_s"]
        .value
        for rate in (0.1, 1, 10, 100)
    ]
    assert waits[0] == pytest.approx(60, rel=0.01)
    assert waits == sorted(waits, reverse=True)


def test_the_gateway_is_told_how_many_requests_it_has_to_hold():
    given = GIVEN | {"requests_per_s": "7200requests/h", "buffer": 100}
    values = ask(TOPIC, given).answer.values
    held = np.random.default_rng(2).poisson(120, 100_000) + 1
    assert np.mean(held > values["held_requests"].value) < 0.002
    assert values["refused_requests"].value == values["held_requests"].value - 100


def test_idle_nights_are_saved_whole():
    given = GIVEN | {"requests_per_s": "1requests/h"}
    values = ask(TOPIC, given | {"idle_share": "1"}, PRICE).answer.values
    assert values["stopped_share"].value == 1
    assert values["saved_usd_per_s"].to("USD/h") == pytest.approx(3)
