"""Fits the step-time model to the times of requests that an engine served among many others.

A request's time from its first to its last token is a sum of steps, and what was in each of them
nobody wrote down. So the run is simulated, which says which steps they were; the fit says how long
such steps must take; and with these the run is simulated again.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ridgeline.physics.fit import Fit, Vector, fit
from ridgeline.physics.step_time import NAMES, Coefficients, StepTime
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Model, Serving
from ridgeline.serving.simulate.world import Clients, World
from ridgeline.timeline import NS, Timeline

#: So many simulations: from the third on a schedule changes by a step here and there only.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Learned:
    """What was found: the step times, and how uncertain their coefficients are."""

    steps: StepTime
    fitted: Fit


def learn(
    model: Model, clients: Callable[[], Clients], answering_s: Mapping[int, float]
) -> Learned:
    """Step times under which some requests take from first to last token what was measured.

    `clients` makes all requests of the run anew, of which `answering_s` tells some by number. The
    step times of `model`, which has one replica, are where the search starts and what it stays
    near: the prior of `physics.fit`.
    """
    steps = model.engine.machine.steps
    assert isinstance(steps, StepTime), "plain numbers have no coefficients"
    assert model.replicas == 1, "one schedule"
    numbers = sorted(answering_s)
    measured = np.array([answering_s[number] for number in numbers])
    prior = np.array([value_of(getattr(steps.coefficients, name)) for name in NAMES])
    for _ in range(ROUNDS):
        fitted = fit(_prediction(steps, model, clients(), numbers), measured, prior)
        found = Coefficients(*fitted.values.tolist())
        steps = StepTime(steps.shape, replace(found, source="fitted to requests"))
    return Learned(steps, fitted)


@dataclass(slots=True)
class _Watched:
    """Step times that write down what they are asked; a simulation with them makes no jumps."""

    steps: StepTime
    timeline: Timeline = field(default_factory=Timeline)
    began_ns: list[int] = field(default_factory=list)
    asked: list[tuple[float, ...]] = field(default_factory=list)

    def step_s(
        self,
        decode_tokens: Any = None,
        cached_tokens: Any = None,
        prompt_tokens: Any = None,
        attended_tokens: Any = None,
        /,
    ) -> Any:
        asked = (decode_tokens, cached_tokens, prompt_tokens, attended_tokens)
        self.began_ns.append(self.timeline.now_ns)
        self.asked.append(tuple(float(one or 0.0) for one in asked))
        return self.steps.step_s(*asked)


def _prediction(
    steps: StepTime, model: Model, clients: Clients, numbers: list[int]
) -> Callable[[Vector], Vector]:
    """How long these requests take from first to last token, as a function of coefficients.

    Which steps there are, and of whom, is as under `steps`.
    """
    watched = _Watched(steps)
    machine = Machine(watched, model.engine.machine.kv_tokens)
    world = World(Serving((replace(model, engine=replace(model.engine, machine=machine)),)))
    watched.timeline = world.timeline
    spans = _spans(world.run(clients), watched.began_ns, round(model.engine.deliver_s * NS))
    first, last = np.array([spans[number] for number in numbers]).T
    asked = np.array(watched.asked).T

    def predict(values: Vector) -> Vector:
        each = StepTime(steps.shape, Coefficients(*values)).step_s(*asked)
        until = np.concatenate([[0.0], np.cumsum(each)])
        return np.asarray(until[last] - until[first], dtype=np.float64)

    return predict


def _spans(outcome: Outcome, began_ns: list[int], late_ns: int) -> dict[int, tuple[int, int]]:
    """Of each answered request: how many steps had ended at its first token, and at its last.

    The step that ends then has begun before, and the next one has not.
    """
    some = outcome.answered
    names = ("number", "first_ns", "done_ns")
    columns = [outcome.columns[name][some].tolist() for name in names]
    return {
        number: (bisect_left(began_ns, first - late_ns), bisect_left(began_ns, done - late_ns))
        for number, first, done in zip(*columns, strict=True)
    }
