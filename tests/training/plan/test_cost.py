"""The cost of a trained token."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()

LEDGER = {"params": "70.6B", "bf16_flop_per_s": "989 TFLOP/s"}


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


def test_params_that_are_set_reach_the_cost_of_a_dense_model():
    whole = ask("training-cost").answer.values["run_cost"].value
    half = ask("training-cost", {}, {"params": "35.3B"}).answer.values["run_cost"].value
    assert half == pytest.approx(whole * 35.3 / 70.554, rel=0.001)


def test_a_mixture_costs_what_its_active_parameters_do():
    flop = 6 * 37e9 * 1e12
    given = {"model": "deepseek-v3", "tokens": "1T", "mfu": "0.5", "price": "2 USD/h"}
    values = ask("training-cost", given, {"bf16_flop_per_s": "1000 TFLOP/s"}).answer.values
    assert values["run_cost"].value == pytest.approx(flop / 5e14 / 3600 * 2, rel=0.02)


def commands(name: str, given: dict[str, object]) -> list[str]:
    notes = ask(name, given).answer.notes
    return [note.split("ridgeline ")[-1] for note in notes if "ridgeline plan training-" in note]


def answered(command: str) -> Asked:
    words = command.split()
    options = dict(zip(words[2::2], words[3::2], strict=True))
    return ask(words[1], {name[2:]: value for name, value in options.items()})


def test_cost_and_layout_send_each_other_the_mfu():
    given = {"model": "llama-3.1-8b", "gpus": 1024}
    [there] = commands("training-cost", given | {"accelerator": "h200-sxm"})
    layout = answered(there)
    assert layout.inputs["gpus"].value == 1024
    assert layout.inputs["accelerator"].id == "h200-sxm"
    [back] = commands("training-layout", given)
    cost = answered(back)
    found = ask("training-layout", given).answer.values["mfu"].value
    assert cost.inputs["mfu"].value == pytest.approx(found, abs=0.0005)
    assert cost.inputs["model"].id == "llama-3.1-8b"
