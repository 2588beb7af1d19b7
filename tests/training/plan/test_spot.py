"""Spot training: the closed forms against each other and against a walk through losses."""

import math
import random

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S169")
def test_at_60_percent_discount_break_even_is_33_3_min_to_first_order_and_23_1_exact():
    given = {"discount": "0.6", "interval_s": "30min", "restart_s": "5min"}
    values = ask("spot-training", given).answer.values
    assert values["break_even_s"].value / 60 == pytest.approx(33.3, rel=0.01)
    assert values["break_even_exact_s"].value / 60 == pytest.approx(23.1, rel=0.01)
    assert values["preemption_waste_s"].value / 60 == pytest.approx(20)


def test_other_cadences_are_printed_beside_it():
    found = {
        row["interval"].value / 60: (row["first_order"].value / 60, row["exact"].value / 60)
        for row in ask("spot-training").answer.table
    }
    expected = {10: (16.7, 10.3), 30: (33.3, 23.1), 60: (58.3, 41.8)}
    for minutes, pair in expected.items():
        assert found[minutes] == pytest.approx(pair, rel=0.01)


@pytest.mark.parametrize("discount", [0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("restart", [0, 300, 3600])
def test_at_the_exact_break_even_a_useful_hour_costs_what_on_demand_does(
    discount: float, restart: float
):
    common = {"discount": str(discount), "restart_s": f"{restart}s", "interval_s": "30min"}
    even = ask("spot-training", common).answer.values["break_even_exact_s"].value
    at = ask("spot-training", common | {"node_loss_s": f"{even}s"}).answer.values
    assert at["cost_over_on_demand"].value == pytest.approx(1, rel=1e-6)


def test_the_stretch_is_what_random_losses_cost_on_average():
    interval, restart, mean = 1800.0, 300.0, 2400.0
    values = ask(
        "spot-training",
        {"node_loss_s": f"{mean}s", "interval_s": f"{interval}s", "restart_s": f"{restart}s"},
    ).answer.values
    draw = random.Random(7)
    walls, rounds = 0.0, 40_000
    for _ in range(rounds):
        while (life := draw.expovariate(1 / mean)) < interval:
            walls += life + restart
        walls += interval
    stretch = walls / (rounds * interval)
    exact = values["cost_over_on_demand"].value / 0.4
    assert exact == pytest.approx((mean + restart) * math.expm1(interval / mean) / interval)
    assert stretch == pytest.approx(exact, rel=0.01)


def test_gangs_past_the_largest_answer_no():
    largest = ask("spot-training").answer.values["largest_gang"].value
    assert ask("spot-training", {"nodes": int(largest)}).answer.ok
    assert not ask("spot-training", {"nodes": int(largest) + 1}).answer.ok


def test_an_interval_that_never_survives_is_a_no_and_no_overflow():
    asked = ask("spot-training", {"interval_s": "100 years", "node_loss_s": "1min"})
    assert not asked.answer.ok
    assert asked.answer.values["lost_share"].value == pytest.approx(1)
