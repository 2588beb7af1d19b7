"""Decode and prefill under the roofline, with the ledger's inputs."""

import numpy as np
import pytest

from ridgeline.platform.plan import topics
from ridgeline.quantity import Quantity
from ridgeline.topics import Asked, ask
from ridgeline.units import parse_unit
from ridgeline.working.formula import bound

topics()

#: The rows take 70.6e9 parameters for the FLOPs too, 989e12 dense and 3.35e12 B/s.
LEDGER = {
    "params": "70.6B",
    "active_params": "70.6B",
    "bf16_flop_per_s": "989 TFLOP/s",
    "memory_bytes_per_s": "3.35 TB/s",
}


def decode(**given: str) -> Asked:
    return ask("decode-roofline", given, LEDGER)


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


@pytest.mark.proves("S096")
def test_the_ridge_is_295_the_limit_at_8k_60_6_and_1_500_tokens_can_reach_the_ridge():
    asked = decode(context_tokens="8k", batch="64")
    assert value(asked, "ridge_flop_per_byte") == pytest.approx(295, rel=0.01)
    assert value(asked, "ridge_batch") == pytest.approx(295, rel=0.01)
    assert value(asked, "limit_flop_per_byte") == pytest.approx(60.6, rel=0.01)
    assert value(asked, "ridge_context_tokens") == pytest.approx(1500, rel=0.01)
    assert value(asked, "attention_flop_per_byte") == 8
    assert value(asked, "weights_flop_per_byte") == 64
    assert value(asked, "ridge_cache_bytes") == pytest.approx(792e9, rel=0.01)
    [step] = asked.find("step_s")
    assert bound(step) == "memory"


def test_no_batch_passes_the_limit_and_below_the_ridge_context_one_reaches_the_ridge():
    def at(batch: str, context: str) -> float:
        return value(decode(batch=batch, context_tokens=context), "step_flop_per_byte")

    assert at("64", "8k") < at("4096", "8k") < at("1000000", "8k") <= 60.7
    assert at("1000000", "1400 tokens") > 295.2
    assert at("1000000", "1600 tokens") < 295.2


def test_a_latent_cache_has_enough_arithmetic_to_reach_the_ridge_further_out():
    asked = ask("decode-roofline", {"model": "deepseek-v3", "dtype": "fp8", "kv_dtype": "bf16"})
    # 128 heads share 576 values and weigh 512: 2 x 128 x (576 + 512) / (576 x 2) FLOP a byte.
    assert value(asked, "attention_flop_per_byte") == pytest.approx(2 * 128 * 1088 / 1152)
    assert any("below the ridge" in note for note in asked.answer.notes)
    older = {"model": "deepseek-v3", "accelerator": "a100-80gb-sxm"}  # its ridge is 153
    assert any("above the ridge" in note for note in ask("decode-roofline", older).answer.notes)


def test_a_mixture_needs_a_batch_as_much_larger_as_it_has_more_weights_than_it_uses():
    mixture, dense = (
        ask("decode-roofline", {"model": one, "dtype": "fp8", "batch": "64"})
        for one in ("deepseek-v3", "llama-3.1-70b")
    )
    ratio = value(mixture, "ridge_batch") / value(dense, "ridge_batch")
    assert ratio == pytest.approx(671.03 / 36.63, rel=0.001)
    assert value(mixture, "weights_flop_per_byte") < 0.1 * value(dense, "weights_flop_per_byte")


@pytest.mark.proves("S174")
def test_decode_of_one_has_intensity_1_and_a_2_000_token_prefill_2_000_against_295():
    sets = {key: LEDGER[key] for key in ("bf16_flop_per_s", "memory_bytes_per_s")}
    asked = ask("phase-rooflines", {"prompt_tokens": "2000", "batch": "1"}, sets)
    assert value(asked, "decode_flop_per_byte") == 1
    assert value(asked, "prefill_flop_per_byte") == 2000
    assert value(asked, "ridge_flop_per_byte") == pytest.approx(295, rel=0.01)
    assert [row["binds"] for row in asked.answer.table] == ["memory", "compute"]
    assert value(asked, "prefill_share") == 1
    assert value(asked, "decode_share") == pytest.approx(1 / 295.2, rel=0.01)


def test_smaller_weights_move_the_ridge_in_tokens_not_only_in_intensity():
    half = ask("phase-rooflines", {"dtype": "fp8"})
    whole = ask("phase-rooflines", {"dtype": "bf16"})
    assert value(half, "ridge_tokens") == pytest.approx(value(whole, "ridge_tokens"), rel=0.01)
    assert value(half, "ridge_flop_per_byte") == pytest.approx(
        2 * value(whole, "ridge_flop_per_byte"), rel=0.01
    )


def test_a_sweep_of_the_batch_is_one_array_and_rises_to_the_roof():
    batches = np.array([1.0, 64.0, 4096.0])
    swept = ask("decode-roofline", {"batch": Quantity(batches, parse_unit("sequences"))})
    for index, batch in enumerate(batches):
        alone = ask("decode-roofline", {"batch": f"{batch:g}"})
        for name in ("step_flop_per_byte", "step_s", "attained_flop_per_s"):
            assert swept.answer.values[name].value[index] == pytest.approx(value(alone, name))
