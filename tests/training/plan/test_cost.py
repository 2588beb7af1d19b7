"""The cost of a trained token."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {"active_params": "70.6B", "bf16_flop_per_s": "989 TFLOP/s"}


@pytest.mark.proves("S094")
def test_a_million_tokens_cost_0_744_dollars_15t_11_2_million_and_7467_a_second_is_the_turn():
    values = ask(
        "training-cost",
        {
            "price": "2.50 USD/h",
            "mfu": "0.4",
            "tokens": "15T",
            "batch": 64,
            "decode_step_s": "25ms",
        },
        LEDGER,
    ).answer.values
    assert values["training_cost"].value * 1e6 == pytest.approx(0.744, rel=0.01)
    assert values["run_cost"].value == pytest.approx(11.2e6, rel=0.01)
    assert values["even_tokens_per_s"].value == pytest.approx(7467, rel=0.01)
    assert values["training_over_decode"].value == pytest.approx(0.3426, rel=0.01)


def test_above_the_turn_a_generated_token_is_the_cheaper_one():
    turn = ask("training-cost").answer.values["even_tokens_per_s"].value
    for factor, dearer in ((1.05, True), (0.95, False)):
        batch = round(turn * factor * 0.025)
        values = ask("training-cost", {"batch": batch}).answer.values
        assert (values["training_over_decode"].value > 1) is dearer


def test_the_run_costs_its_gpu_hours_at_the_price():
    values = ask("training-cost", {"price": "3 USD/h"}).answer.values
    assert values["gpu_time_s"].value / 3600 * 3 == pytest.approx(values["run_cost"].value)
