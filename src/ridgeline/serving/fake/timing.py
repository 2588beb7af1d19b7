"""How long a step of the fake engine takes: the step-time model of the plans, or plain numbers.

`Machine` is what `setup.Setup` gets: a time for each step, and how many tokens the cache holds.
"""

from dataclasses import dataclass, fields
from typing import Any, Protocol

from ridgeline.catalog.accelerators import accelerator as find_accelerator
from ridgeline.catalog.models import model as find_model
from ridgeline.errors import SpecError
from ridgeline.physics.step_time import NAMES, Coefficients, Shape, StepTime
from ridgeline.quantity import Quantity
from ridgeline.serving.plan.steps import step_time
from ridgeline.serving.policy.batch import Step

#: The share of a device's memory that engines take for weights and cache together.
MEMORY_SHARE = 0.9


class StepSeconds(Protocol):
    """The time of one step."""

    def step_s(
        self,
        decode_tokens: Any = None,
        cached_tokens: Any = None,
        prompt_tokens: Any = None,
        attended_tokens: Any = None,
        /,
    ) -> Any:
        """A step that decodes, prefills, or both; `physics.step_time.StepTime` says what is what.

        What there is none of is None.
        """


@dataclass(frozen=True, slots=True)
class Plain:
    """A step in plain numbers: a fixed part, a part for each decoding sequence, and prompts."""

    fixed_s: float = 0.01
    sequence_s: float = 0.0
    prefill_tokens_per_s: float = 20_000.0

    def step_s(
        self,
        decode_tokens: float | None = None,
        _cached_tokens: float | None = None,
        prompt_tokens: float | None = None,
        _attended_tokens: float | None = None,
        /,
    ) -> float:
        """One step; what it attends to costs nothing here."""
        decodes, prompts = decode_tokens or 0.0, prompt_tokens or 0.0
        return self.fixed_s + decodes * self.sequence_s + prompts / self.prefill_tokens_per_s


@dataclass(frozen=True, slots=True)
class Machine:
    """What a fake engine pretends to run on.

    `cache_bytes_per_token` is one copy of a token's cache, as it is sent somewhere; 0: not known.
    """

    steps: StepSeconds
    kv_tokens: int
    cache_bytes_per_token: float = 0.0

    def step_s(self, step: Step) -> float:
        """Seconds for what the scheduler decided; 0 for a step of nothing."""
        if not step.chunks:
            return 0.0
        decodes = cached = prompts = attended = 0
        for chunk in step.chunks:
            if chunk.count == 1 and chunk.samples:
                decodes += 1
                cached += chunk.start
            else:
                prompts += chunk.count
                attended += chunk.count * (chunk.start + chunk.count // 2)
        return float(
            self.steps.step_s(
                decodes or None,
                cached if decodes else None,
                prompts or None,
                attended / prompts if prompts else None,
            )
        )


def machine(
    model: str,
    accelerator: str,
    *,
    tensor_parallel: int = 1,
    dtype: str = "bf16",
    engine: str = "*",
    kv_dtype: str = "bf16",
    memory_share: float = MEMORY_SHARE,
) -> Machine:
    """A model of the catalog on devices of the catalog, timed by the fit that is nearest.

    Raises CatalogError for unknown names, SpecError where the weights leave no room for a cache.
    """
    served, device = find_model(model), find_accelerator(accelerator)
    steps = _plain(
        step_time(
            served,
            device,
            tensor_parallel=float(tensor_parallel),
            dtype=dtype,
            kv_dtype=kv_dtype,
            engine=engine,
        )
    )
    memory = memory_share * _number(device.memory_bytes) * tensor_parallel
    shape = steps.shape
    for_a_token = shape.kv_bytes_per_token + shape.window_bytes_per_token
    kv_tokens = int((memory - shape.weights_bytes) / max(for_a_token, 1.0))
    if kv_tokens < 1:
        raise SpecError(
            f"{served.id} in {dtype} does not fit {tensor_parallel} {device.id}",
            where="--tensor-parallel",
            remedy="more devices, or another --dtype",
        )
    return Machine(steps, kv_tokens, _number(served.kv_bytes_per_token(kv_dtype)))


def _plain(exact: StepTime) -> StepTime:
    """The same on floats: a live loop asks for the number only, without its working."""
    shape = {field.name: _number(getattr(exact.shape, field.name)) for field in fields(Shape)}
    values: dict[str, Any] = {name: _number(getattr(exact.coefficients, name)) for name in NAMES}
    return StepTime(Shape(**shape), Coefficients(**values, source=exact.coefficients.source))


def _number(value: Any) -> float:
    if value is None:  # a device without links, which only tensor parallelism would use
        return 1.0
    return float(value.value if isinstance(value, Quantity) else value)
