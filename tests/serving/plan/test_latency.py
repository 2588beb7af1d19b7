"""The step-time topic: what clients in a closed loop see."""

import pytest

from ridgeline.errors import CatalogError, SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()
H100 = {"model": "llama-3.1-70b", "accelerator": "h100-sxm", "tensor_parallel": "8"}


def values(**given: str):
    return ask("step-time", H100 | given).answer.values


def test_tokens_per_second_are_clients_over_the_time_of_a_token():
    found = values(concurrency="64")
    assert found["output_tokens_per_s"].value == pytest.approx(64 / found["tpot_s"].value)


def test_longer_answers_are_interrupted_less_often():
    brief, long = values(output_tokens="100"), values(output_tokens="2000")
    share = [one["tpot_s"].value / one["decode_step_s"].value for one in (brief, long)]
    assert share[0] > 1.5 > share[1] > 1


def test_engines_differ_by_what_was_fitted_to_them():
    found = {engine: values(engine=engine)["tpot_s"].value for engine in ("vllm", "sglang")}
    assert found["vllm"] != found["sglang"]
    notes = ask("step-time", H100 | {"engine": "vllm"}).answer.notes
    assert any("dense/vllm" in note for note in notes)


def test_half_of_what_was_measured_lies_between_low_and_high():
    found = values(engine="vllm")
    error = ask("step-time", H100 | {"engine": "vllm"}).find("median_error")[0].value
    assert 0.02 < error < 0.2
    assert found["tpot_low_s"].value * (1 + error) == pytest.approx(found["tpot_s"].value)
    assert found["tpot_high_s"].value * (1 - error) == pytest.approx(found["tpot_s"].value)


def test_the_roofline_is_a_bound_without_an_interval():
    bound, fitted = values(engine="roofline"), values()
    assert bound["tpot_s"].value < fitted["tpot_low_s"].value
    assert "tpot_low_s" not in bound


def test_weights_in_a_type_that_the_device_cannot_multiply_are_widened():
    wide = ask("step-time", H100 | {"dtype": "nvfp4"})
    assert wide.find("bf16_flop_per_s")
    assert not wide.find("fp4_flop_per_s")


def test_tokens_of_a_mixture_wait_for_the_experts_that_they_visit():
    given = {"model": "deepseek-v3", "accelerator": "h200-sxm", "dtype": "fp8"}
    few, many = values(**given, concurrency="1"), values(**given, concurrency="256")
    assert many["decode_step_s"].value > 3 * few["decode_step_s"].value


def test_a_device_without_a_rate_for_what_it_widens_to_is_refused():
    with pytest.raises(CatalogError):
        ask("step-time", {"accelerator": "groq-lpu-v1", "dtype": "fp8"})


@pytest.mark.parametrize("ranks", [3, 7, 48])
def test_a_split_that_does_not_divide_the_heads_is_refused_as_in_every_other_topic(ranks: int):
    with pytest.raises(SpecError, match=f"{ranks} does not divide 64 attention heads") as refused:
        ask("step-time", H100 | {"tensor_parallel": str(ranks)})
    assert refused.value.where == "tensor-parallel"
    with pytest.raises(SpecError, match=f"{ranks} does not divide 64 attention heads"):
        ask("users-per-node", {"gpus": ranks})
