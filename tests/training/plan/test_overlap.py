"""FSDP's gather behind arithmetic."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {"bf16_flop_per_s": "989 TFLOP/s"}


@pytest.mark.proves("S052")
def test_the_forward_gather_hides_above_7912_tokens_a_gpu_at_50_gb_per_s_and_40_percent():
    given = {"model": "llama-3.1-405b", "link": "50 GB/s", "mfu": "0.4"}
    least = ask("fsdp-overlap", given, LEDGER).answer.values["least_tokens"].value
    assert round(least) == 7912
    many = 10**6  # ranks, so that each gathers all
    for tokens, hidden in ((7990, True), (7830, False)):
        values = ask(
            "fsdp-overlap", given | {"tokens": str(tokens), "ranks": many}, LEDGER
        ).answer.values
        is_hidden = values["gather_s"].value <= values["layer_s"].value
        assert is_hidden is hidden, tokens


def test_the_number_of_parameters_does_not_matter_but_the_share_of_the_chip_does():
    small, large = (
        ask("fsdp-overlap", {"model": name}).answer.values["least_tokens"].value
        for name in ("llama-3.1-8b", "llama-3.1-405b")
    )
    assert small == large
    taken = ask("fsdp-overlap", {"sm_share": "0.1"}).answer.values
    assert taken["least_tokens"].value == pytest.approx(0.9 * large)
    assert taken["slowed_s"].value > 0


def test_a_node_whose_devices_bring_a_part_each_needs_as_many_times_fewer_tokens():
    values = ask("fsdp-overlap").answer.values
    assert 8 * values["least_tokens_by_node"].value == pytest.approx(values["least_tokens"].value)


def test_backward_needs_more_tokens_with_32_bit_gradients():
    values = ask("fsdp-overlap").answer.values
    assert values["least_tokens_backward"].value == pytest.approx(
        1.5 * values["least_tokens"].value
    )


def test_mixtures_are_refused_since_they_gather_more_than_they_multiply():
    with pytest.raises(SpecError, match="gathers all experts"):
        ask("fsdp-overlap", {"model": "deepseek-v3"})
