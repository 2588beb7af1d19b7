"""Fine-tuning: all weights, adapters, and adapters beside four-bit weights."""

import math

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {"params": "70.6B", "memory_bytes": "80GB"}


@pytest.mark.proves("S166")
def test_70b_takes_1_13_tb_and_15_gpus_against_141_gb_and_3_3_gb_for_rank_16():
    values = ask("fine-tune-memory", {"rank": 16, "optimizer": "adam"}, LEDGER).answer.values
    assert values["full_state_bytes"].value == pytest.approx(1.13e12, rel=0.01)
    assert values["full_gpus"].value == 15
    assert values["frozen_bytes"].value == pytest.approx(141e9, rel=0.01)
    assert values["adapter_state_bytes"].value == pytest.approx(3.3e9, rel=0.01)
    assert values["lora_gpus"].value == 2
    assert values["activation_bytes"].value > 0


def test_adapters_are_counted_matrix_by_matrix():
    h, f, q, kv, layers = 8192, 28672, 8192, 1024, 80
    shapes = [(h, q), (h, kv), (h, kv), (q, h), (h, f), (h, f), (f, h)]
    expected = sum(16 * (i + o) for i, o in shapes) * layers
    found = ask("fine-tune-memory", {"rank": 16}).answer.values["adapter_params"].value
    assert found == expected
    attention = ask("fine-tune-memory", {"rank": 16, "targets": "attention"}).answer.values
    assert attention["adapter_params"].value == sum(16 * (i + o) for i, o in shapes[:4]) * layers


def test_both_pay_the_same_activations_and_recomputation_is_what_saves_them():
    full, none = (
        ask("fine-tune-memory", {"recompute": level}).answer.values["activation_bytes"].value
        for level in ("full", "none")
    )
    # With full recomputation a layer keeps its input, and one layer is whole at a time.
    assert none / full == pytest.approx(33.5 * 80 / (2 * 80 + 33.5))
    memory = {"sequence_tokens": "4k", "recompute": "full"}
    asked = ask("activation-memory", memory).answer.values["micro_batch_bytes"].value
    assert full == pytest.approx(asked)


def test_an_eight_bit_optimizer_keeps_ten_bytes_a_parameter():
    values = ask("fine-tune-memory", {"optimizer": "adam-8bit"}, LEDGER).answer.values
    assert values["full_state_bytes"].value == pytest.approx(70.6e9 * 10)


def test_mixtures_are_refused_rather_than_counted_as_dense():
    with pytest.raises(SpecError, match="dense models"):
        ask("fine-tune-memory", {"model": "mixtral-8x7b"})


def quantized(given: dict[str, object] | None = None, **sets: str) -> dict[str, float]:
    asked = ask("qlora-memory", {"embeddings": "quantized"} | (given or {}), sets)
    return {name: float(one.value) for name, one in asked.answer.values.items()}


@pytest.mark.proves("S054")
def test_70b_in_nf4_is_35_3_gb_of_payload_and_1_1_gb_of_doubly_quantized_scales():
    values = quantized({"block_size": 64, "super_block": 256}, params="70.6B")
    assert values["payload_bytes"] == pytest.approx(35.3e9, rel=0.01)
    assert values["scales_bytes"] == pytest.approx(1.1e9, rel=0.02)
    assert values["scales_bytes"] == pytest.approx(70.6e9 * 0.127 / 8, rel=0.01)
    assert values["base_bytes"] == pytest.approx(36.4e9, rel=0.01)
    assert values["double_saves_bytes"] == pytest.approx(70.6e9 * 0.373 / 8, rel=0.01)
    assert values["widening_share"] > 0
    assert values["dora_bytes"] > 0


def test_single_quantized_scales_take_half_a_bit_a_weight():
    values = quantized({"double_quantization": "no"}, params="70.6B")
    assert values["scales_bytes"] == pytest.approx(70.6e9 / 16)


def test_tables_left_in_16_bits_are_what_the_usual_35_gb_leaves_out():
    usual, real = quantized(), quantized({"embeddings": "bf16"})
    tables = 2 * 128256 * 8192
    assert real["wide_bytes"] == pytest.approx(2 * tables, rel=0.01)
    assert real["base_bytes"] > usual["base_bytes"] + 3e9


def test_dora_adds_one_magnitude_for_each_output():
    plain, with_magnitudes = quantized(), quantized({"dora": "yes"})
    outputs = 8192 + 1024 + 1024 + 8192 + 28672 + 28672 + 8192
    added = with_magnitudes["total_bytes"] - plain["total_bytes"]
    assert added == pytest.approx(16 * outputs * 80)


def test_the_headline_counts_activations_and_leaves_room_for_the_runtime():
    values = ask("fine-tune-memory", {"accelerator": "l40s"}).answer.values
    assert next(iter(values)) == "full_gpus_with_activations"
    card = ask("fine-tune-memory", {"accelerator": "l40s"}).find("memory_bytes")[0].value
    for kind, state in (("full", "full_state_bytes"), ("lora", "lora_bytes")):
        need = values[state].value + values["activation_bytes"].value
        assert values[f"{kind}_gpus_with_activations"].value == math.ceil(need / (0.9 * card))
    # 144 of 145 GB is no fit: the usual figure is kept, and is not what the sentence says.
    assert values["lora_gpus"].value == 3
    assert values["lora_gpus_with_activations"].value == 4


def test_the_sentence_names_the_model_the_device_and_the_counts_that_fit():
    said = ask("fine-tune-memory").answer.says
    for name in ("model", "accelerator", "full_gpus_with_activations", "memory_share"):
        assert f"{{{name}}}" in said
    assert "{lora_gpus}" not in said


def test_more_memory_used_needs_no_more_devices():
    counts = [
        ask("fine-tune-memory", {"memory_share": share}).answer.values
        for share in ("0.5", "0.9", "1")
    ]
    for name in ("full_gpus_with_activations", "lora_gpus_with_activations"):
        found = [values[name].value for values in counts]
        assert found == sorted(found, reverse=True)
    assert counts[0]["full_gpus"].value == counts[2]["full_gpus"].value
