"""A step's time told apart by the terms of the step-time law."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.step_time import StepTime, roofline
from ridgeline.physics.straight_steps import FS, straight_steps
from ridgeline.serving.fake.timing import Machine, Plain, machine
from ridgeline.serving.simulate.bound import terms_of

H100 = machine("llama-3.1-8b", "h100-sxm")
STEPS = H100.steps


@given(st.integers(1, 300), st.integers(0, 10**6), st.integers(0, 8192), st.integers(0, 10**9))
def test_terms_and_what_engines_add_are_the_step(decodes, cached, prompts, pairs):
    straight = straight_steps(STEPS)
    bandwidth, compute = terms_of(H100)(decodes, prompts, 1, cached, pairs)
    added = straight.ring_fs * (decodes + prompts) + straight.sequence_fs * decodes
    whole = straight.step_fs(decodes, cached, prompts, pairs)
    assert bandwidth + compute + added + straight.fixed_fs == whole


@given(st.integers(1, 64), st.integers(0, 10**5), st.integers(1, 500))
def test_a_run_has_the_sum_of_its_steps(decodes, cached, times):
    terms = terms_of(H100)
    steps = [terms(decodes, 0, 1, cached + decodes * place, 0) for place in range(times)]
    at_once = terms(decodes, 0, times, times * cached + decodes * times * (times - 1) // 2, 0)
    assert at_once == tuple(map(sum, zip(*steps, strict=True)))


def test_small_batches_read_and_large_ones_compute():
    few, many = (terms_of(H100)(0, tokens, 1, 0, 0) for tokens in (16, 8192))
    assert few[0] > 0 == few[1]
    assert many[1] > 0 == many[0]


def test_where_all_overlaps_the_longer_side_has_the_whole_step():
    ideal = StepTime(STEPS.shape, roofline())
    terms = terms_of(Machine(ideal, 1000))
    for decodes, prompts in ((4, 0), (0, 8192)):
        bandwidth, compute = terms(decodes, prompts, 1, 4000, 0)
        step_s = ideal.step_s(
            decodes or None, 4000 if decodes else None, prompts or None, 0.0 if prompts else None
        )
        assert bandwidth + compute == pytest.approx(step_s * FS)
        assert min(bandwidth, compute) == 0


def test_windows_bend_the_reads_of_a_cache():
    bent = replace(STEPS.shape, window_bytes_per_token=1e4, window_tokens=100)
    steps = StepTime(bent, STEPS.coefficients)
    assert straight_steps(steps) is None
    bandwidth, compute = terms_of(Machine(steps, 1000))(4, 0, 1, 4000, 0)
    added = steps.added_s(4.0, 4.0)
    assert bandwidth + compute + added * FS == pytest.approx(steps.step_s(4.0, 4000.0) * FS)


def test_of_plain_numbers_only_prompts_are_known():
    assert terms_of(Machine(Plain(0.01, 0.001, 1000.0), 100))(5, 20, 1, 0, 0) == (0, FS // 50)
    assert terms_of(Machine(object(), 100)) is None
