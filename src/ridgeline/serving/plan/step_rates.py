"""What a token of a prompt and of an answer takes of a replica: the step-time model as rates.

Only proportions count where busy seconds are shared (`policy.attribution`), so a model and machine
that nobody named are stood in for by one of the catalog, and the source says so.
"""

import re
from dataclasses import fields

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.errors import CatalogError, SpecError
from ridgeline.physics.step_time import NAMES, Coefficients, Shape, StepTime
from ridgeline.quantity import given, value_of
from ridgeline.serving.plan.steps import fitted_step, shape_of
from ridgeline.serving.policy.attribution import Rates

#: What stands in for a model or a machine that the catalog does not know.
STAND_IN = "llama-3.1-8b@h100-sxm"
#: Where the slopes are taken: a prompt's chunk, and a context.
_CHUNK_TOKENS = 2048.0
_CONTEXT_TOKENS = 2048.0
MOST_AT_ONCE = 1024.0


def step_time_of(named: str) -> tuple[StepTime, str]:
    """The fitted step-time model of `MODEL@ACCELERATOR` or `MODEL@4xACCELERATOR`, and its source.

    Raises SpecError where the catalog has no such model or accelerator.
    """
    model_name, _, machine = named.partition("@")
    several = re.fullmatch(r"(\d{1,4})x(.+)", machine)
    devices, machine = (int(several[1]), several[2]) if several else (1, machine)
    try:
        what, where = model(model_name), accelerator(machine)
        shape = shape_of(what, where, given(max(devices, 1)), "bf16", "bf16")
        fitted = fitted_step(what, where, engine="*", dtype="bf16")
    except CatalogError as error:
        raise SpecError(
            f"{named!r} is no MODEL@ACCELERATOR of the catalog: {error.problem}",
            where="step times",
            remedy=f"as in {STAND_IN} or llama-3.1-70b@4xh100-sxm; `ridgeline catalog` lists both",
        ) from error
    floats = {one.name: value_of(getattr(shape, one.name)) for one in fields(Shape)}
    values = {name: value_of(getattr(fitted.coefficients, name)) for name in NAMES}
    return StepTime(
        Shape(**floats), Coefficients(**values)
    ), f"step times of {named}, fit {fitted.id!r}"


def rates(step: StepTime, at_once: float, source: str) -> Rates:
    """Rates of a replica that runs so many sequences at once on average."""
    batch = min(max(at_once, 1.0), MOST_AT_ONCE)
    empty_s = step.decode_s(batch, 0.0)
    full_s = step.decode_s(batch, batch * _CONTEXT_TOKENS)
    alone_s = step.step_s(prompt_tokens=_CHUNK_TOKENS, attended_tokens=0.0)
    seeing_s = step.step_s(prompt_tokens=_CHUNK_TOKENS, attended_tokens=_CONTEXT_TOKENS)
    return Rates(
        prompt_s=float(alone_s / _CHUNK_TOKENS),
        attended_s=float((seeing_s - alone_s) / (_CHUNK_TOKENS * _CONTEXT_TOKENS)),
        output_s=float(empty_s / batch),
        cached_s=float((full_s - empty_s) / (batch * _CONTEXT_TOKENS)),
        source=f"{source}, {batch:.3g} at once",
    )
