"""Step times from what a client sees of a running engine: `ridgeline calibrate --from-live`.

What is seen is a time that some steps took together, and perhaps the way of a request to the
scheduler and of a token back. Each of them is a sum of what is looked for (`StepTable`), so there
is one fit for all, and its intervals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ridgeline.errors import BenchError
from ridgeline.physics.fit import Fit, Vector, fit
from ridgeline.physics.step_table import StepTable, interpolated

#: Measured times scatter by so much, and nothing but its order of magnitude is known before.
NOISE_SD = 0.03
PRIOR_SD = 2.5
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Counts:
    """What one step did; `pairs`: for each prompt token the tokens that it attends to."""

    decodes: float = 0.0
    cached: float = 0.0
    prompts: float = 0.0
    pairs: float = 0.0

    @property
    def rows(self) -> float:
        """Tokens that pass through the weights."""
        return self.decodes + self.prompts


@dataclass(frozen=True, slots=True)
class Observed:
    """Some steps that took `seconds` together; with `travels` a request's ways are in them."""

    steps: tuple[Counts, ...]
    seconds: float
    travels: bool = False
    what: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, and the range that holds it with about 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The step times, and what a request's ways take together; `errors` are shares."""

    rows: tuple[int, ...]
    curve: tuple[Estimate, ...]
    sequence_s: Estimate
    cached_s_per_token: Estimate
    attended_s_per_pair: Estimate
    travel_s: Estimate
    errors: Vector

    @property
    def table(self) -> StepTable:
        """As `physics` has it."""
        slopes = (self.sequence_s, self.cached_s_per_token, self.attended_s_per_pair)
        curve = tuple(one.value for one in self.curve)
        return StepTable(self.rows, curve, *(one.value for one in slopes))


def prompt_steps(tokens: int, step_tokens: int, cached: int = 0) -> tuple[Counts, ...]:
    """The steps of a prompt alone, of which some is cached, where one takes so many at most."""
    starts = range(cached, tokens, step_tokens)
    sizes = [(start, min(step_tokens, tokens - start)) for start in starts]
    return tuple(
        Counts(prompts=count, pairs=count * (start + count // 2)) for start, count in sizes
    )


def fit_table(seen: Sequence[Observed], rows: Sequence[int]) -> Fitted:
    """The most probable step times; the curve gets those of `rows` that something was seen near.

    Raises BenchError where too little was seen to tell them apart.
    """
    points = _points(seen, rows)
    kinds = {len(one.steps) == 1 and one.steps[0].prompts == 0 for one in seen}
    if len(points) < 3 or len(kinds) < 2 or len(seen) < len(points) + 4:
        raise BenchError(
            f"{len(seen)} measurements do not say how long steps take",
            where="--seconds",
            remedy="more of them, or an engine that nobody else uses",
        )
    matrix = np.array([_parts(one, points) for one in seen])
    measured = np.array([one.seconds for one in seen])
    prior = _prior(seen, points)
    found = fit(_predict(matrix), measured, prior, prior_sd=PRIOR_SD, noise_sd=NOISE_SD)
    errors = np.abs(matrix @ found.values / measured - 1)
    curve = tuple(_sum_of(found, index + 1) for index in range(len(points)))
    sequence, cached, attended, travel = (_one_of(found, index) for index in range(-4, 0))
    return Fitted(tuple(points), curve, sequence, cached, attended, travel, errors)


def _points(seen: Sequence[Observed], rows: Sequence[int]) -> list[int]:
    """1, and each point that is nearest to some step."""
    return sorted({1, *(_nearest(rows, step.rows) for one in seen for step in one.steps)})


def _nearest(rows: Sequence[int], at: float) -> int:
    return min(rows, key=lambda point: abs(point - at))


def _parts(one: Observed, points: Sequence[int]) -> Vector:
    """How often each thing that is looked for is in a time: rises of the curve, slopes, ways."""
    parts = np.zeros(len(points) + 4)
    for step in one.steps:
        for index in range(len(points)):
            rise = [float(place >= index) for place in range(len(points))]
            parts[index] += interpolated(points, rise, step.rows)
        parts[-4:-1] += (step.decodes, step.cached, step.pairs)
    parts[-1] = one.travels
    return parts


def _predict(matrix: Vector) -> Callable[[Vector], Vector]:
    def predict(values: Vector) -> Vector:
        return np.maximum(matrix @ values, _LEAST)

    return predict


def _prior(seen: Sequence[Observed], points: Sequence[int]) -> Vector:
    """Orders of magnitude, from the shortest and the longest of what was seen."""
    least = min(one.seconds / len(one.steps) for one in seen)
    longest = max(seen, key=lambda one: one.seconds)
    row_s = longest.seconds / sum(step.rows for step in longest.steps)
    rises = [least / 2, *(row_s * (b - a) / 2 for a, b in pairwise(points))]
    return np.array([*rises, row_s / 2, row_s / 500, row_s / 1000, least / 4])


def _one_of(found: Fit, index: int) -> Estimate:
    return Estimate(float(found.values[index]), *found.interval(index))


def _sum_of(found: Fit, count: int) -> Estimate:
    """The first so many values together: variances by their own slopes (the delta method)."""
    values = found.values[:count]
    value = float(values.sum())
    spread = 1.96 * float(np.sqrt(values @ found.log_covariance[:count, :count] @ values))
    return Estimate(value, max(0.0, value - spread), value + spread)
