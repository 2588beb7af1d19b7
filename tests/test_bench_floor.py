import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="floors are measured with torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import hf_model
from floor import SMOLLM2_135M, WEIGHT_BYTES, Floors, Machine, weights_bytes
from ridgeline.errors import ModelError
from ridgeline.serving.engine.model_files import open_model

# The rates of the machine on which the floors below were worked out by hand.
GENOA = Machine(
    read_bytes_per_s=20e9,
    typical_read_bytes_per_s=19e9,
    weights_read_bytes_per_s=dict.fromkeys(WEIGHT_BYTES, 20e9),
    gemm_flop_per_s={"fp32": 180e9, "bf16": 425e9, "int8": 858e9},
    threads=2,
)
sizes = st.integers(1, 64)
lengths = st.integers(2, 2048)


def floors(dtype: str, machine: Machine = GENOA) -> Floors:
    return Floors(SMOLLM2_135M, machine, dtype)


@pytest.mark.parametrize(
    ("dtype", "one_ms", "sixteen_ms", "thirty_two_ms", "prompt_512_ms"),
    [
        ("fp32", 27, 27, 47.8, 655),
        ("bf16", 13.5, 13.5, 20.3, 278),
        ("int8", 6.7, 6.7, 10.0, 148),
    ],
)
def test_step_floors_are_those_worked_out_by_hand(
    dtype: str, one_ms: float, sixteen_ms: float, thirty_two_ms: float, prompt_512_ms: float
) -> None:
    found = floors(dtype)
    steps_ms = [1e3 * found.decode_step_s(batch, 0) for batch in (1, 16, 32)]
    assert steps_ms == pytest.approx([one_ms, sixteen_ms, thirty_two_ms], rel=0.01)
    assert 1e3 * found.prefill_s(512) == pytest.approx(prompt_512_ms, rel=0.01)


def test_the_cache_of_32_sequences_costs_what_was_worked_out_by_hand() -> None:
    assert 1e3 * floors("bf16").kv_read_s(32, 256) == pytest.approx(9.4, rel=0.01)
    assert 1e3 * floors("bf16").kv_read_s(32, 576) == pytest.approx(21.2, rel=0.01)


@pytest.mark.parametrize(("prompt", "tokens_per_s"), [(128, 730), (512, 290)])
def test_workload_floors_are_those_worked_out_by_hand(prompt: int, tokens_per_s: float) -> None:
    found = floors("bf16").workload_tokens_per_s(prompt, 128, 32)
    assert found == pytest.approx(tokens_per_s, rel=0.02)


@given(lengths, lengths, sizes, st.floats(1, 10))
def test_a_faster_machine_never_has_a_slower_floor(
    prompt: int, output: int, concurrency: int, factor: float
) -> None:
    faster = replace(
        GENOA,
        read_bytes_per_s=GENOA.read_bytes_per_s * factor,
        weights_read_bytes_per_s={k: v * factor for k, v in GENOA.weights_read_bytes_per_s.items()},
    )
    slow = floors("bf16").workload_s(prompt, output, concurrency)
    assert floors("bf16", faster).workload_s(prompt, output, concurrency) <= slow


@given(lengths, lengths, st.integers(2, 64))
def test_side_by_side_is_never_bounded_above_one_after_another(
    prompt: int, output: int, concurrency: int
) -> None:
    together = floors("bf16").workload_s(prompt, output, concurrency)
    assert together <= concurrency * floors("bf16").workload_s(prompt, output, 1)


@given(lengths, lengths, sizes)
def test_prompts_computed_apart_from_decodes_are_never_below_the_floor(
    prompt: int, output: int, concurrency: int
) -> None:
    """An engine at both rooflines that never mixes the two phases is one the floor must allow."""
    found = floors("bf16")
    context = prompt + output / 2
    steps_s = (output - 1) * found.decode_step_s(concurrency, context)
    apart_s = concurrency * found.prefill_s(prompt) + steps_s
    assert found.workload_s(prompt, output, concurrency) <= apart_s * (1 + 1e-9)


def test_the_shape_is_the_default_model_s_own() -> None:
    try:
        gguf = hf_model.default_gguf()
    except ModelError as error:
        pytest.skip(str(error))
    shape = open_model(gguf).architecture
    named = replace(SMOLLM2_135M, bos_id=shape.bos_id, eos_ids=shape.eos_ids)
    assert named == replace(shape, rms_eps=named.rms_eps)
    assert shape.rms_eps == pytest.approx(named.rms_eps)
    norms = 576 * (2 * 30 + 1)
    assert weights_bytes(shape, "int8") + norms == 134_515_008


def test_an_int8_cache_is_little_over_half_of_what_is_read() -> None:
    wide = floors("bf16")
    small = replace(wide, kv_dtype="int8")
    share = small.kv_read_s(16, 2048) / wide.kv_read_s(16, 2048)
    assert share == (64 + 4) / 128  # a number a dimension, and a scale
