"""From a model on a machine to the step-time model: what a step moves and computes."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.architecture import CAPPED, FULL
from ridgeline.catalog.models import Model
from ridgeline.catalog.step_times import ANY, step_coefficients
from ridgeline.physics.attention import attention_flop_per_token
from ridgeline.physics.law import law
from ridgeline.physics.step_time import Coefficients, Shape, StepTime
from ridgeline.quantity import Number, Provenance, Quantity, given

# Activations travel in 16 bits whatever the weights are.
_ACTIVATIONS = "bf16"


@law
def row_bytes_per_token(
    hidden: Number, value_bytes: Number, rows_per_token: Number = 1.0
) -> Number:
    """Activations of one token between two layers.

    Source: one row of the residual stream.
    """
    return rows_per_token * hidden * value_bytes


def step_time(
    model: Model,
    accelerator: Accelerator,
    *,
    tensor_parallel: Number,
    dtype: str = "bf16",
    kv_dtype: str = "bf16",
    engine: str = ANY,
    version: str = ANY,
) -> StepTime:
    """The step-time model with the best fit that the catalog has for this engine and machine.

    Raises CatalogError for a dtype that the device has no rate for.
    """
    shape = shape_of(model, accelerator, tensor_parallel, dtype, kv_dtype)
    return StepTime(shape, coefficients_for(model, accelerator, engine, version, dtype))


def family_of(model: Model) -> str:
    """Which defaults hold for the model."""
    return "moe" if model.is_moe else "dense"


def coefficients_for(
    model: Model, accelerator: Accelerator, engine: str, version: str, dtype: str
) -> Coefficients:
    """What the catalog has that fits best."""
    return step_coefficients(
        family_of(model),
        model=model.id,
        accelerator=accelerator.id,
        engine=engine,
        version=version,
        dtype=dtype,
    ).coefficients


def shape_of(
    model: Model, accelerator: Accelerator, tensor_parallel: Number, dtype: str, kv_dtype: str
) -> Shape:
    """What a step of this model on `tensor_parallel` devices moves and computes, all together."""
    has_window = bool(model.attention.get("window"))
    ranks = model.kv_bytes_per_token_per_rank(kv_dtype, tensor_parallel) * tensor_parallel
    return Shape(
        weights_bytes=model.weights_bytes(dtype),
        routed_bytes=_routed_bytes(model, dtype),
        experts=model.experts if model.is_moe else 1.0,
        top_k=model.top_k if model.is_moe else 1.0,
        flop_per_token=model.flop_per_token(),
        attention_flop_per_token_token=_slope(model, *FULL, "mla", "csa"),
        window_flop_per_token_token=_slope(model, *CAPPED),
        window_tokens=model.window_tokens if has_window else model.context_tokens,
        kv_bytes_per_token=ranks.named("kv_bytes_per_token_all_ranks"),
        window_bytes_per_token=_window_bytes(model, kv_dtype, has_window),
        state_bytes_per_token=_state_bytes(model, has_window),
        hidden_bytes_per_token=row_bytes_per_token(model.hidden, dtype_bytes(_ACTIVATIONS)),
        layers=model.layers,
        tensor_parallel=tensor_parallel,
        memory_bytes_per_s=accelerator.memory_bytes_per_s,
        peak_flop_per_s=accelerator.flop_per_s(_multiplied_in(model, accelerator, dtype)),
        link_bytes_per_s=accelerator.link_bytes_per_s,
    )


def _multiplied_in(model: Model, accelerator: Accelerator, dtype: str) -> str:
    """The type of the products: a device without units for the weights' type widens them to bf16.

    So do the weight-only kernels of every engine; the derivation names the rate that was taken.
    """
    held = model.native_dtypes["experts"] if dtype == "native" else dtype
    return held if accelerator.multiplies(held) else "bf16"


def _one_token() -> Quantity:
    return given(1, "token", provenance=Provenance.DEFINED, source="one token")


def _slope(model: Model, *kinds: str) -> Quantity:
    """FLOPs of attention for each pair of a query and a key that it sees, over these layers."""
    one = _one_token()
    parts = [
        attention_flop_per_token(
            model.layers_of(f"{kind}_layers", kind), model.heads, model.attention_width(kind), one
        )
        / one
        for kind in model.layer_mix
        if kind in kinds
    ]
    total = parts[0] if parts else given(0, "FLOP/token/token", source="no such layers")
    for part in parts[1:]:
        total = total + part
    return total


def _routed_bytes(model: Model, dtype: str) -> Number:
    if not model.is_moe:
        return 0
    part = "experts" if dtype == "native" else dtype
    value = dtype_bytes(model.native_dtypes[part] if part == "experts" else part)
    return (model.routed_params * value).named("routed_bytes")


def _window_bytes(model: Model, kv_dtype: str, has_window: bool) -> Quantity:
    """A token's cache in layers with a window, from what a full window holds."""
    if not has_window:
        return given(0, "B/token", source="no layers with a window")
    held = model.fixed_bytes_per_sequence(kv_dtype) - _states(model)
    return (held / model.window_tokens).named("window_bytes_per_token")


def _state_bytes(model: Model, has_window: bool) -> Quantity:
    if not model.linear_layers.value:
        return given(0, "B/token", source="no recurrent layers")
    assert not has_window, "the catalog has no model with both windows and states"
    return (_states(model) / _one_token()).named("state_bytes_per_token")


def _states(model: Model) -> Number:
    return model.fixed_bytes_per_sequence() if model.linear_layers.value else 0
