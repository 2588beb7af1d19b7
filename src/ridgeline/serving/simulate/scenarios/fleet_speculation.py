"""Speculation across a fleet: what it gives at each batch, and a draft that goes bad (row S145).

The first part stands beside its formula: a step that is bound by the weights checks guesses for
nothing up to one batch, and gives no more than plain steps from another one on. The second is a
fleet whose callers change: guesses hold more seldom, nothing fails, and an alarm says so.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.catalog.accelerators import accelerator as find_accelerator
from ridgeline.physics.roofline import ridge_tokens
from ridgeline.physics.speculation import accepted_length, break_even_batch, free_batch
from ridgeline.physics.step_time import Shape, StepTime, roofline
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.acceptance_alarm import Expected
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.scenarios.streams import Streams, always, gain, last_batch, token_s
from ridgeline.serving.simulate.setup import Engine, Model, Serving, Tenant
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

_MOST = 512  # sequences that are tried
_ALIKE = 1e-6  # steps that differ by less take as long


@dataclass(frozen=True, slots=True)
class Formula:
    """What arithmetic says of a draft that costs nothing."""

    kept: float
    free_batch: float
    break_even_batch: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """The largest batch at which checking costs nothing, and the largest with a gain."""

    free_batch: int
    break_even_batch: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """When a replica said that guesses hold more seldom, and what it said."""

    at_s: float
    replica: str
    said: str


def weights_only(accelerator: str, params: float = 8e9) -> Machine:
    """A dense model in bf16 whose steps read weights or multiply with them, and nothing else."""
    device = find_accelerator(accelerator)
    bandwidth = float(value_of(device.memory_bytes_per_s))
    peak = float(value_of(device.flop_per_s("bf16")))
    shape = Shape(
        2 * params, 0, 1, 1, 2 * params, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 1, bandwidth, peak,
        1.0,
    )  # fmt: skip
    return Machine(StepTime(shape, roofline()), 1_000_000)


def formula(on: Machine, guessing: Guessing) -> Formula:
    """Of a machine like that."""
    assert isinstance(on.steps, StepTime), "weights and products"
    shape, checked = on.steps.shape, guessing.drafts + 1
    critical = ridge_tokens(shape.peak_flop_per_s, shape.memory_bytes_per_s, 2)
    kept = accepted_length(guessing.chance(), guessing.drafts)
    return Formula(kept, free_batch(critical, checked), break_even_batch(critical, kept, checked))


def simulated(on: Machine, guessing: Guessing, streams: Streams | None = None) -> Simulated:
    """The same by simulation, with guesses in every step."""
    streams = streams or Streams()

    def is_free(batch: int) -> bool:
        # Guesses that all hold: then each step gives as many tokens, and its time is told apart.
        sure = Guessing(1.0, guessing.drafts, guessing.draft_share, "always")
        return token_s(on, batch, sure, streams) <= token_s(on, 1, sure, streams) * (1 + _ALIKE)

    return Simulated(
        last_batch(is_free, 1, _MOST),
        last_batch(lambda batch: gain(on, batch, always(guessing), streams) >= 1, 1, _MOST),
    )


def gains(
    on: Machine, guessing: Guessing, batches: Sequence[int], streams: Streams | None = None
) -> list[tuple[int, float, float]]:
    """At each batch: with guesses in every step, and with the engine's own switch."""
    streams = streams or Streams()
    return [
        (one, gain(on, one, always(guessing), streams), gain(on, one, guessing, streams))
        for one in batches
    ]


def silent_drop(
    on: Machine, before: float, after: float, *, at_s: float = 30.0, expected: Expected | None
) -> tuple[list[Alarm], list[float]]:
    """Four replicas, ten requests a second; from then on others call, whose guesses hold less.

    Alarms, and the mean time of a token before and after.
    """
    guessing = Guessing({"old": before, "new": after}, rule="always", expected=expected)
    requests = [
        Request(place / 10, 1, 200, tenant="old" if place < 10 * at_s else "new")
        for place in range(round(20 * at_s))
    ]
    model = Model("chat", Engine(on, guessing=guessing), 4)
    alarms: list[Alarm] = []

    def keep(line: str) -> None:
        event = json.loads(line)
        if event["event"] == "alarm":
            alarms.append(Alarm(event["at_ns"] / 1e9, event["who"], event["what"][0]))

    serving = Serving((model,), (Tenant("old"), Tenant("new")))
    outcome = simulate(serving, OpenLoop(requests, "chat"), Log(keep))
    return alarms, [float(outcome.of(tenant=name).tpot_s().mean()) for name in ("old", "new")]
