"""Guesses on a sparse model: the step-time law finds the batches that a simulation finds."""

import pytest

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.scenarios.sparse_speculation import crossings, points
from ridgeline.serving.simulate.scenarios.streams import Streams

SPARSE = machine("qwen3-30b-a3b", "h100-sxm")
STREAMS = Streams(shared_blocks=8, output_tokens=64)


@pytest.mark.proves("S077")
@pytest.mark.parametrize(
    ("model", "devices", "acceptance", "low", "high"),
    [
        ("qwen3-30b-a3b", 1, 0.5, 64, 600),
        ("mixtral-8x7b", 2, 0.5, 32, 300),
        ("mixtral-8x7b", 2, 0.7, 32, 300),
    ],
)
def test_the_batch_where_the_gain_crosses_1_is_predicted_within_10_percent(
    model, devices, acceptance, low, high
):
    on = machine(model, "h100-sxm", tensor_parallel=devices)
    predicted, simulated = crossings(on, Guessing(acceptance), STREAMS, low, high)
    assert low < simulated < high
    assert predicted == pytest.approx(simulated, rel=0.10)


@pytest.mark.proves("S077")
def test_few_sequences_read_experts_for_guesses_and_many_read_all_anyway():
    few, more, many = points(SPARSE, Guessing(0.5), (3, 32, 400), STREAMS)
    assert few.experts_guessing > 3 * few.experts
    assert few.simulated < 1 < more.simulated
    assert many.simulated < 1, "the arithmetic binds"
    for one in (few, more, many):
        assert one.predicted == pytest.approx(one.simulated, rel=0.10)


def test_a_draft_that_costs_something_gains_less():
    free, dear = (Guessing(0.7, draft_share=share) for share in (0.0, 0.2))
    (one,) = points(SPARSE, free, (32,), STREAMS)
    (other,) = points(SPARSE, dear, (32,), STREAMS)
    assert other.predicted < one.predicted / 1.5
    assert other.simulated == pytest.approx(other.predicted, rel=0.10)
