"""Speculation on a sparse model: at which batches guesses pay, predicted and simulated (row S077).

The guesses of a step visit experts that a plain step would not read. With few sequences that costs
more than it gives; with more of them all experts are read anyway and guesses are free; with many
the arithmetic binds. So the gain may cross 1 three times, and the prediction is the step-time law
alone: what a step of so many rows takes, over what it keeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.physics.size import distinct_experts
from ridgeline.physics.speculation import accepted_length, speculation_gain
from ridgeline.physics.step_time import StepTime
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.scenarios.streams import Streams, always, gain, last_batch


@dataclass(frozen=True, slots=True)
class Point:
    """One batch: experts of a layer that a step reads, without and with guesses; and the gain."""

    batch: int
    experts: float
    experts_guessing: float
    predicted: float
    simulated: float


def predicted_gain(on: Machine, batch: int, guessing: Guessing, streams: Streams) -> float:
    """By the step-time law, each sequence with the mean context."""
    cached, drafts = batch * streams.context_tokens, guessing.drafts
    plain_s = on.steps.step_s(float(batch), cached)
    checked_s = on.steps.step_s(float(batch), cached, float(drafts * batch), 0.0)
    drafts_s = drafts * guessing.draft_share * plain_s
    kept = accepted_length(guessing.chance(), drafts)
    return float(speculation_gain(kept, plain_s, checked_s, drafts_s))


def points(
    on: Machine, guessing: Guessing, batches: Sequence[int], streams: Streams
) -> list[Point]:
    """Both gains at each batch."""
    assert isinstance(on.steps, StepTime), "a model of the catalog"
    shape = on.steps.shape
    return [
        Point(
            batch,
            float(distinct_experts(shape.experts, shape.top_k, batch)),
            float(distinct_experts(shape.experts, shape.top_k, batch * (1 + guessing.drafts))),
            predicted_gain(on, batch, guessing, streams),
            gain(on, batch, always(guessing), streams),
        )
        for batch in batches
    ]


def crossings(
    on: Machine, guessing: Guessing, streams: Streams, low: int, high: int
) -> tuple[int, int]:
    """The largest batch with a gain, predicted and simulated; at `low` there is one, not at `high`.

    Between the two it is crossed once.
    """
    return (
        last_batch(lambda one: predicted_gain(on, one, guessing, streams) >= 1, low, high),
        last_batch(lambda one: gain(on, one, always(guessing), streams) >= 1, low, high),
    )
