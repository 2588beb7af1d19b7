"""One run over two sites."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S121")
def test_141_gb_of_gradients_take_5_6_s_a_step_on_200_gb_per_s_and_the_fabric_is_1024x_wider():
    asked = ask(
        "two-clouds",
        {"link": "200 Gb/s", "nodes": 512, "node_link": "400 Gb/s"},
        {"params": "70.6B"},
    )
    values = asked.answer.values
    assert values["exchanged_bytes"].value == pytest.approx(141.2e9)
    assert values["exchange_s"].value == pytest.approx(5.6, rel=0.01)
    assert values["fabric_over_link"].value == 1024
    assert values["slowdown"].value == pytest.approx(1 + 5.648 / values["compute_s"].value)
    tolerable = {row["split"]: row["tolerable"] for row in asked.answer.table}
    assert tolerable["data parallel, every step"] == "no"
    assert tolerable["local steps (DiLoCo), every 500"] == "yes"
    assert tolerable["separate jobs"] == "yes"


def test_the_least_steps_between_exchanges_is_where_the_slowdown_becomes_tolerable():
    least = ask("two-clouds", {"tolerable": "1.1"}).answer.values["least_steps_between"].value
    for steps, holds in ((int(least) + 1, True), (int(least) - 1, False)):
        slow = ask("two-clouds", {"steps_between": steps}).answer.values["slowdown"].value
        assert (slow <= 1.1) is holds


def test_an_exchange_behind_enough_steps_is_not_seen():
    assert (
        ask("two-clouds", {"overlap": "yes", "steps_between": 20}).answer.values["slowdown"].value
        == 1
    )
