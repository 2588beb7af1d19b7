"""Step times learned from the times of requests: what was hidden is found again."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ridgeline.serving.fake.timing import Machine, Plain, machine
from ridgeline.serving.simulate.calibrate import learn
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

KNOWN = machine("llama-3.1-8b", "h100-sxm", engine="vllm")
REQUESTS = [Request(0.05 * n, 200 + 97 * (n % 7), 40 + 31 * (n % 5)) for n in range(120)]


def model(on: Machine) -> Model:
    return Model("chat", Engine(on, max_seqs=32, deliver_s=0.002), slots=len(REQUESTS))


def run(on: Machine) -> Outcome:
    return simulate(Serving((model(on),)), OpenLoop(REQUESTS, "chat"))


def answering_s(outcome: Outcome) -> dict[int, float]:
    columns = outcome.columns
    took = (columns["done_ns"] - columns["first_ns"]) / 1e9
    return dict(zip(columns["number"].tolist(), took.tolist(), strict=True))


def truth() -> Machine:
    """A machine whose memory and arithmetic are worse than known, by unlike factors."""
    has = KNOWN.steps.coefficients
    worse = replace(
        has, bandwidth_share=0.75 * has.bandwidth_share, compute_share=0.6 * has.compute_share
    )
    return replace(KNOWN, steps=replace(KNOWN.steps, coefficients=worse))


def test_what_was_not_seen_is_told_from_what_was():
    """Nearly: so few requests do not outweigh the prior, from which the truth is 0.6 away."""
    real = run(truth())
    seen = {number: took for number, took in answering_s(real).items() if number < 40}
    learned = learn(model(KNOWN), partial(OpenLoop, REQUESTS, "chat"), seen)
    before, after = run(KNOWN), run(replace(KNOWN, steps=learned.steps))
    rest = range(40, len(REQUESTS))
    real_s, before_s, after_s = (
        np.array([answering_s(one)[number] for number in rest]) for one in (real, before, after)
    )
    assert abs(before_s.mean() / real_s.mean() - 1) > 0.2
    assert after_s.mean() == pytest.approx(real_s.mean(), rel=0.02)
    ttft_s = [one.ttft_s().mean() for one in (real, before, after)]
    assert abs(ttft_s[2] / ttft_s[0] - 1) < abs(ttft_s[1] / ttft_s[0] - 1) / 2, (
        "what prompts take shows in others' answers only"
    )


def test_it_finds_the_same_twice():
    seen = answering_s(run(truth()))
    first, second = (learn(model(KNOWN), partial(OpenLoop, REQUESTS, "chat"), seen) for _ in "ab")
    assert first.steps.coefficients == second.steps.coefficients


def test_a_run_that_is_as_expected_teaches_nothing():
    learned = learn(model(KNOWN), partial(OpenLoop, REQUESTS, "chat"), answering_s(run(KNOWN)))
    for name in ("bandwidth_share", "compute_share", "layer_s"):
        known = getattr(KNOWN.steps.coefficients, name)
        assert getattr(learned.steps.coefficients, name) == pytest.approx(known, rel=1e-3)


def test_plain_numbers_have_no_coefficients():
    plain = model(Machine(Plain(), 10_000))
    with pytest.raises(AssertionError, match="no coefficients"):
        learn(plain, partial(OpenLoop, REQUESTS, "chat"), {0: 1.0})
