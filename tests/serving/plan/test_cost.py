"""What a request costs."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S192")
def test_four_replicas_at_5_dollars_cost_1_33_a_thousand_against_a_floor_of_0_28_at_21_percent():
    values = ask(
        "cost-per-request",
        {
            "replicas": 4,
            "price": "5 USD/h",
            "period_s": "24h",
            "requests": "360000",
            "replica_rate": "5 requests/s",
        },
    ).answer.values
    assert values["spend"].value == pytest.approx(480)
    assert values["actual"].value == pytest.approx(1.33, rel=0.01)
    assert values["floor"].value == pytest.approx(0.28, rel=0.01)
    assert values["utilisation"].value == pytest.approx(0.2083, rel=0.01)
    assert values["replica_per_hour"].to("requests/h") == pytest.approx(18_000)


def test_more_requests_than_the_fleet_can_answer_are_a_no_without_negative_idling():
    asked = ask("cost-per-request", {"requests": str(4 * 5 * 86_400 + 1)})
    assert not asked.answer.ok
    assert asked.answer.says.startswith("{replicas} cannot")
    assert asked.answer.values["idle_spend"].value == 0


def test_a_fully_busy_fleet_costs_its_floor_and_idles_nothing():
    full = 4 * 5 * 86_400
    values = ask("cost-per-request", {"requests": str(full)}).answer.values
    assert values["idle_gap"].value == pytest.approx(1)
    assert values["idle_spend"].value == pytest.approx(0, abs=1e-9)
