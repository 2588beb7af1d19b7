"""What measured points should have been: time to first token, per token, and tokens a second.

The steps of a closed loop are counted once (`protocol`), the step-time model says how long each one
takes (`physics.step_time`), and three coefficients say what comes on top:

    request_s, request_s_per_token   a request's way to the scheduler and its first token's way back
    prompt_layer_s                   launches of a step that has prompts, for which no graph is kept

All are fitted together, in log space, to whatever was measured. `ridgeline predict` and
`bench/plan_accuracy.py` are the callers; arrays throughout, a value for each point.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import RidgelineError
from ridgeline.physics.fit import Fit, Vector, fit
from ridgeline.physics.step_time import NAMES, Coefficients, Shape, StepTime
from ridgeline.quantity import given, value_of
from ridgeline.serving.plan.points import Point, Pool, Refused
from ridgeline.serving.plan.protocol import Counts, Protocol, Waited, replay
from ridgeline.serving.plan.steps import shape_of

ADDED = ("prompt_layer_s", "request_s", "request_s_per_token")
ALL = (*NAMES, *ADDED)
#: Of a device's memory, for weights and caches together; what is left is for activations.
MEMORY_SHARE = 0.88
#: Tokens that one step takes at most, as engines have it by default or as the runs were started.
STEP_TOKENS = {"vllm": 8192, "trtllm": 8192, "sglang": 8192}
#: Whether a step with prompts goes on decoding (SGLang's does not, unless it is asked to).
MIXES = {"vllm": True, "trtllm": True, "sglang": False}


@dataclass(frozen=True, slots=True)
class Loop:
    """A point with all that does not depend on coefficients: what is moved, and counted steps."""

    point: Point
    shape: Shape
    counts: Counts
    prefill: Shape | None = None
    clients: float = 0.0


def loops(points: Sequence[Point]) -> tuple[list[Loop], list[Refused]]:
    """The loop of each point, and those that the machine could not have run."""
    found: list[Loop] = []
    refused: list[Refused] = []
    for point in points:
        try:
            found.append(loop(point))
        except RidgelineError as error:
            refused.append(Refused(point.line, point.name, error.problem, point.mode))
    return found, refused


def loop(point: Point) -> Loop:
    """Raises RidgelineError where the weights do not fit, or a rate is not in the catalog."""
    shape = _shape(point, point.decode)
    share = 1.0 - (1.0 - point.least_share) / 2
    prompt, answer = share * point.prompt_tokens, share * point.answer_tokens
    clients = max(1, -(-point.clients // point.decode.workers))
    seats = _seats(point, shape, point.decode, prompt + answer * _held(point.engine))
    if seats < 1:
        raise RidgelineError(
            f"{point.decode.devices} {point.accelerator.id} have no room for {point.model.id} in "
            f"{point.dtype} and one sequence"
        )
    protocol = Protocol(
        clients, min(seats, clients), point.prompt_tokens, point.answer_tokens,
        STEP_TOKENS[point.engine], MIXES[point.engine], point.least_share,
    )  # fmt: skip
    return Loop(point, shape, replay(protocol))


def _held(engine: str) -> float:
    """How much of its answer a sequence holds room for, on average."""
    return 1.0 if engine == "trtllm" else 0.5


def _seats(point: Point, shape: Shape, pool: Pool, context: float) -> int:
    """Sequences whose caches fit beside the weights."""
    memory = MEMORY_SHARE * value_of(point.accelerator.memory_bytes) * pool.devices
    room = memory - shape.weights_bytes
    windowed = min(context, shape.window_tokens)
    each = (
        context * shape.kv_bytes_per_token
        + windowed * shape.window_bytes_per_token
        + shape.state_bytes_per_token
    )
    return int(room / each) if room > 0 else 0


def _shape(point: Point, pool: Pool) -> Shape:
    return _shape_of(
        point.model.id, point.accelerator.id, point.dtype, _cache(point), pool.devices, pool.ranks
    )


def _cache(point: Point) -> str:
    """Type of the cache, which the rows do not tell: TensorRT-LLM's is fp8 beside fp8 weights."""
    return "fp8" if point.engine == "trtllm" and point.dtype != "bf16" else "bf16"


@lru_cache(maxsize=4096)
def _shape_of(
    model_id: str, device_id: str, dtype: str, kv_dtype: str, devices: int, ranks: int
) -> Shape:
    """In plain numbers. Ranks with attentions of their own read what is not of experts each."""
    from ridgeline.catalog.accelerators import accelerator
    from ridgeline.catalog.models import model

    served, device = model(model_id), accelerator(device_id)
    whole = _plain(served, device, devices, dtype, kv_dtype)
    if ranks == 1:
        return whole
    one = _plain(served, device, devices // ranks, dtype, kv_dtype)
    again = (ranks - 1) * (whole.weights_bytes - whole.routed_bytes)
    return replace(
        whole,
        weights_bytes=whole.weights_bytes + again,
        kv_bytes_per_token=one.kv_bytes_per_token,
        window_bytes_per_token=one.window_bytes_per_token,
        hidden_bytes_per_token=whole.hidden_bytes_per_token / 2,
    )


def _plain(served: Model, device: Accelerator, devices: int, dtype: str, kv_dtype: str) -> Shape:
    shape = shape_of(served, device, given(devices), dtype, kv_dtype)
    return Shape(**{f.name: value_of(getattr(shape, f.name)) for f in fields(Shape)})


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds, an array for each."""

    ttft_s: Vector
    tpot_s: Vector


class Predictor:
    """Times of some loops as a function of coefficients, in the order of `ALL`."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._shape = _stacked([one.shape for one in loops])
        self._first = _waited([one.counts.first for one in loops])
        self._token = _waited([one.counts.token for one in loops])
        self._decoding = np.array([one.counts.decoding for one in loops])
        self._beside = np.array([one.counts.beside for one in loops])
        share = np.array([1 - (1 - one.point.least_share) / 2 for one in loops])
        self._prompt = share * np.array([one.point.prompt_tokens for one in loops])
        self._context = self._prompt + share * np.array([o.point.answer_tokens for o in loops]) / 2

    def times(self, values: Vector) -> Times:
        """Both of them."""
        steps = StepTime(self._shape, Coefficients(*values[: len(NAMES)]))
        prompt_layer_s, request_s, request_s_per_token = values[len(NAMES) :]
        decoding = np.maximum(self._decoding, 1.0)
        plain_s = steps.decode_s(decoding, decoding * self._context)
        launches = self._shape.layers * prompt_layer_s

        def waited_s(waited: Waited) -> Vector:
            tokens = np.maximum(waited.tokens_each, 1.0)
            # A prompt that is cut or that is one of several attends to half of itself on average.
            mixed = steps.step_s(
                self._beside, self._beside * self._context, tokens, self._prompt / 2
            )
            return waited.prompt_steps * (mixed + launches) + waited.plain_steps * plain_s

        way_s = request_s + request_s_per_token * self._prompt
        return Times(way_s + waited_s(self._first), waited_s(self._token))


def _waited(all_of: Sequence[Waited]) -> Waited:
    return Waited(
        *(np.array([getattr(one, field.name) for one in all_of]) for field in fields(Waited))
    )


def _stacked(shapes: Sequence[Shape]) -> Shape:
    return Shape(**{f.name: np.array([getattr(s, f.name) for s in shapes]) for f in fields(Shape)})
