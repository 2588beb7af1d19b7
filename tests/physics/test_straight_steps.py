"""The step-time model in whole numbers says what the one on floats says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.step_time import StepTime
from ridgeline.physics.straight_steps import FS, straight_steps
from ridgeline.serving.fake.timing import machine

STEPS = machine("llama-3.1-8b", "h100-sxm").steps
SPLIT = machine("llama-3.1-70b", "h100-sxm", tensor_parallel=4).steps
ROUTED = machine("mixtral-8x7b", "h100-sxm", tensor_parallel=2).steps


@pytest.mark.parametrize("steps", [STEPS, SPLIT, ROUTED], ids=["one device", "four", "experts"])
@given(st.integers(0, 300), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5))
def test_it_is_the_model_to_a_millionth(steps: StepTime, decodes, cached, prompts, attended):
    if not decodes and not prompts:
        return
    straight = straight_steps(steps)
    expected_s = steps.step_s(
        decodes or None,
        cached if decodes else None,
        prompts or None,
        attended if prompts else None,
    )
    found = straight.step_fs(decodes, cached if decodes else 0, prompts, prompts * attended)
    assert found / FS == pytest.approx(expected_s, rel=1e-6)


def test_all_of_it_slower_is_every_step_slower():
    straight = straight_steps(STEPS)
    step = straight.step_fs(7, 9_000, 300, 40_000)
    assert straight.slower(2.5).step_fs(7, 9_000, 300, 40_000) == pytest.approx(
        2.5 * step, rel=1e-9
    )


def test_what_bends_has_no_constants():
    shape = replace(STEPS.shape, window_bytes_per_token=100.0, window_tokens=4096.0)
    assert straight_steps(StepTime(shape, STEPS.coefficients)) is None
    ideal = replace(STEPS.coefficients, overlaps=True)
    assert straight_steps(StepTime(STEPS.shape, ideal)) is None
