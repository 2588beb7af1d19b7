"""The step-time model: limits it must have, and the same number three ways."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.physics.step_time import (
    NAMES,
    Coefficients,
    Shape,
    StepTime,
    closed_loop_tpot_s,
    roofline,
)
from ridgeline.quantity import Quantity, value_of
from ridgeline.quantity import given as quantity
from ridgeline.serving.plan.steps import step_time

IDEAL = Coefficients(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)  # nothing added, and nothing overlaps


def plain(steps: StepTime) -> StepTime:
    """The same model on floats, as a simulator takes it."""
    shape = Shape(**{f.name: value_of(getattr(steps.shape, f.name)) for f in fields(Shape)})
    values = {name: value_of(getattr(steps.coefficients, name)) for name in NAMES}
    return StepTime(shape, Coefficients(**values))


def steps(name: str = "llama-3.1-70b", tensor_parallel: int = 8, dtype: str = "bf16") -> StepTime:
    return step_time(
        model(name),
        accelerator("h100-sxm"),
        tensor_parallel=quantity(tensor_parallel),
        dtype=dtype,
    )


def tokens(value: float) -> Quantity:
    return quantity(value, "tokens")


def test_with_ideal_coefficients_one_sequence_takes_the_time_to_read_the_weights():
    ideal = replace(plain(steps()), coefficients=IDEAL)
    ideal = replace(ideal, shape=replace(ideal.shape, link_bytes_per_s=1e30))
    read_s = 70_553_706_496 * 2 / (8 * 3.35e12)
    assert ideal.decode_s(1.0, 0.0) == pytest.approx(read_s)


@given(st.integers(1, 512), st.integers(0, 32768), st.integers(0, 8192))
def test_floats_and_quantities_agree(batch: int, context: int, prompt: int):
    whole, bare = steps(), plain(steps())
    explained = whole.step_s(
        tokens(batch), tokens(batch * context), tokens(prompt), tokens(prompt / 2)
    )
    assert bare.step_s(batch, batch * context, prompt, prompt / 2) == pytest.approx(explained.value)
    assert explained.to("s") == explained.value


def test_arrays_give_what_single_numbers_give():
    bare, batches = plain(steps("deepseek-v3", dtype="fp8")), np.array([1.0, 8.0, 64.0, 700.0])
    together = bare.decode_s(batches, batches * 4096)
    assert together == pytest.approx([bare.decode_s(b, b * 4096) for b in batches])


@given(st.integers(1, 256), st.integers(0, 16384), st.integers(0, 4096), st.integers(1, 64))
def test_more_of_anything_never_takes_less_time(batch: int, context: int, prompt: int, more: int):
    bare = plain(steps())
    least = bare.step_s(batch, batch * context, prompt, prompt / 2)
    assert bare.step_s(batch + more, batch * context, prompt, prompt / 2) >= least
    assert bare.step_s(batch, batch * context + more, prompt, prompt / 2) >= least
    assert bare.step_s(batch, batch * context, prompt + more, prompt / 2) >= least


def test_one_device_has_no_all_reduces():
    alone, shared = plain(steps("llama-3.1-8b", 1)), plain(steps("llama-3.1-8b", 2))
    costly = replace(alone.coefficients, all_reduce_s=1.0)
    assert replace(alone, coefficients=costly).decode_s(1, 0) == alone.decode_s(1, 0)
    assert replace(shared, coefficients=costly).decode_s(1, 0) > 2 * 32


def test_a_mixture_reads_the_experts_that_its_tokens_visit():
    bare = replace(plain(steps("deepseek-v3", dtype="fp8")), coefficients=IDEAL)
    one, many = bare.decode_s(1.0, 0.0), bare.decode_s(512.0, 0.0)
    whole_s = 671_026_419_200 / (8 * 3.35e12)
    assert one < 0.1 * whole_s
    assert many > 0.99 * whole_s


@given(st.integers(1, 4096), st.integers(0, 32768), st.integers(1, 8192))
def test_the_roofline_is_the_longer_of_reads_and_arithmetic_and_below_what_overlaps_less(
    batch: int, context: int, prompt: int
):
    ideal = replace(plain(steps()), coefficients=roofline())
    asked = (float(batch), float(batch * context), float(prompt), prompt / 2)
    work = ideal.work(*asked)
    reads_s = (work.read_bytes + work.cached_bytes) / (8 * 3.35e12)
    compute_s = (work.flop + work.prompt_attention_flop) / (8 * 989.5e12)
    assert ideal.step_s(*asked) == pytest.approx(max(reads_s, compute_s), rel=1e-3)
    assert ideal.step_s(*asked) <= replace(ideal, coefficients=IDEAL).step_s(*asked)


def test_shares_of_the_roofline_lengthen_the_side_they_are_of():
    ideal = replace(plain(steps()), coefficients=roofline())
    half = replace(ideal, coefficients=roofline(0.5, 1.0))
    assert half.decode_s(1.0, 0.0) == pytest.approx(2 * ideal.decode_s(1.0, 0.0))
    assert half.prefill_s(8192.0) == pytest.approx(ideal.prefill_s(8192.0))


def test_a_window_caps_what_a_long_context_costs():
    bare = plain(steps("gemma-3-27b"))
    at = [bare.decode_s(1.0, context) for context in (1024.0, 2048.0, 4096.0)]
    slopes = [(at[1] - at[0]) / 1024, (at[2] - at[1]) / 2048]
    assert slopes[0] == pytest.approx(slopes[1])  # past the window only full layers grow
    early = (bare.decode_s(1.0, 1024.0) - bare.decode_s(1.0, 512.0)) / 512
    assert early > 3 * slopes[0]


def test_the_binding_side_of_a_step_is_named():
    few = steps().decode_s(tokens(1), tokens(0))
    many = steps().decode_s(tokens(4096), tokens(0))

    def bound(step: Quantity) -> str:
        found = next(one for one in step.walk() if one.name == "roofline_s")
        return found.labels[found.chosen]

    assert (bound(few), bound(many)) == ("memory", "compute")


def test_one_client_is_never_interrupted():
    assert closed_loop_tpot_s(0.02, 0.5, 1, 100) == 0.02
    assert closed_loop_tpot_s(0.02, 0.5, 11, 100) == pytest.approx(0.02 + 10 * 0.5 / 100)
