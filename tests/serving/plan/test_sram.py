"""SRAM-only accelerators: chips, steps, cost."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {"params": "70.6B", "sram_bytes": "230MB"}


@pytest.mark.proves("S006")
@pytest.mark.parametrize(("dtype", "chips"), [("int8", 307), ("bf16", 614)])
def test_a_70b_takes_307_chips_at_8_bits_and_614_at_bf16(dtype, chips):
    values = ask("sram-only", {"dtype": dtype}, LEDGER).answer.values
    assert values["chips_for_weights"].value == chips
    assert values["chips"].value > chips  # caches come on top


@pytest.mark.proves("S006")
def test_a_batch_1_step_reads_every_stage_in_turn_and_hops_between_them():
    given = {"tensor_parallel": 8, "hop": "1us", "context": "4k", "kv_dtype": "fp8"}
    values = ask("sram-only", given, LEDGER).answer.values
    stages = -(-values["chips"].value // 8)
    read = (70.6e9 + 4096 * 163_840) / (8 * 80e12)
    assert values["stages"].value == stages
    assert values["step_s"].value == pytest.approx(read + stages * 1e-6, rel=1e-6)


@pytest.mark.proves("S006")
def test_a_token_costs_ten_times_as_much_at_a_tenth_of_the_load():
    asked = ask("sram-only", {"utilizations": "0.1,1"}, LEDGER)
    low, full = (row["a million tokens"].value for row in asked.answer.table)
    assert low == pytest.approx(10 * full)
    values = asked.answer.values
    price = values["chips"].value * 0.5 / 3600
    assert full == pytest.approx(1e6 * price / values["tokens_per_s"].value, rel=1e-9)


def test_a_chip_with_other_memory_is_refused_since_its_reads_are_not_of_sram():
    with pytest.raises(SpecError, match="memory besides its SRAM") as error:
        ask("sram-only", {"accelerator": "h100-sxm"})
    assert "groq" in error.value.remedy


def test_a_token_of_a_mixture_reads_only_the_experts_it_visits():
    dense = ask("sram-only", {"model": "llama-3.1-70b"}).answer.values
    mixture = ask("sram-only", {"model": "gpt-oss-120b"}).answer.values
    assert mixture["chips_for_weights"].value > 1.5 * dense["chips_for_weights"].value
    assert mixture["step_s"].value < dense["step_s"].value


def test_more_requests_than_stages_make_no_more_tokens():
    few = ask("sram-only", {"requests": 1000, "context": "1 tokens"}, LEDGER).answer.values
    assert few["tokens_per_s"].value == pytest.approx(few["stages"].value / few["step_s"].value)
