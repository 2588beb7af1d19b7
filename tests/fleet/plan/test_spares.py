"""Three reserves, against the Poisson distribution and a fleet simulated day by day."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.spares import poisson_quantile
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {"nodes": 1280, "failing_share": "1%", "period_s": "30 day", "turnaround_s": "10 day"}


def within(count, mean):
    """P(X <= count), term by term."""
    return sum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(count + 1))


@pytest.mark.proves("S132")
def test_1280_nodes_at_1_percent_a_month_and_10_days_need_4_3_in_repair_plus_the_two_others():
    values = ask("spare-nodes", ROW | {"together": 32, "canaries": 1, "replacement_s": "4 h"})
    found = {k: v.value for k, v in values.answer.values.items()}
    assert found["mean_in_repair"] == pytest.approx(4.3, rel=0.01)
    assert within(7, found["mean_in_repair"]) < 0.95 <= within(8, found["mean_in_repair"])
    assert found["repair_nodes"] == 8
    at_once = 1280 * 0.01 / 30 / 24 * 4
    assert found["failures_at_once"] == pytest.approx(at_once)
    assert within(0, at_once) < 0.95 <= within(1, at_once)
    assert found["restart_nodes"] == 1 + 1
    assert found["together_nodes"] == 32
    assert found["spare_nodes"] == 8 + 2 + 32
    assert [row["nodes"].value for row in values.answer.table] == [8, 2, 32]


@pytest.mark.proves("S132")
def test_the_repair_pipeline_holds_on_as_many_days_as_asked_in_a_simulated_fleet():
    generator = random.Random(3)
    rate = 1280 * 0.01 / 30
    reserve = ask("spare-nodes", ROW).answer.values["repair_nodes"].value
    back, short, now, days = [], 0, 0.0, 40_000
    due = generator.expovariate(rate)
    for day in range(days):
        while due < day:
            back.append(due + generator.uniform(5, 15))  # any spread with a mean of 10 days
            due += generator.expovariate(rate)
        back = [one for one in back if one > day]
        if day >= 100:
            short += len(back) > reserve
        now = len(back) + now
    assert now / days == pytest.approx(4.267, rel=0.03)
    assert short / (days - 100) < 0.05
    assert short / (days - 100) == pytest.approx(1 - within(8, 4.2667), abs=0.01)


def test_known_quantiles_of_six_events_a_day():
    assert poisson_quantile(18.0, 0.95) == 25  # three days' turn
    assert poisson_quantile(84.0, 0.95) == 99  # fourteen


@given(st.floats(0.01, 400), st.floats(0.01, 0.999))
def test_the_quantile_is_the_smallest_count_that_has_the_confidence(mean, confidence):
    count = int(poisson_quantile(mean, confidence))
    assert within(count, mean) >= confidence - 1e-9
    assert count == 0 or within(count - 1, mean) < confidence + 1e-9


@given(st.floats(501, 1500), st.floats(0.5, 0.999))
def test_above_500_the_normal_form_is_within_one_of_the_sum(mean, confidence):
    count = int(poisson_quantile(mean, confidence))
    assert within(count + 1, mean) >= confidence
    assert within(count - 2, mean) < confidence


def test_reserves_are_added_and_not_merged():
    small = ask("spare-nodes", ROW | {"together": 0}).answer.values["spare_nodes"].value
    rack = ask("spare-nodes", ROW | {"together": 18}).answer.values["spare_nodes"].value
    assert rack - small == 18
