"""From a model on a machine to the step-time model: what a step moves and computes."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.architecture import CAPPED, FULL
from ridgeline.catalog.models import Model
from ridgeline.catalog.step_times import ANY, FittedStep, step_coefficients
from ridgeline.physics.attention import attention_flop_per_token
from ridgeline.physics.law import law
from ridgeline.physics.step_time import Shape, StepTime
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
    found = fitted_step(model, accelerator, engine=engine, version=version, dtype=dtype)
    return StepTime(shape, found.coefficients)


def family_of(model: Model) -> str:
    """Which defaults hold for the model."""
    return "moe" if model.is_moe else "dense"


def fitted_step(
    model: Model, accelerator: Accelerator, *, engine: str, version: str = ANY, dtype: str
) -> FittedStep:
    """What the catalog has that fits best."""
    return step_coefficients(
        family_of(model),
        model=model.id,
        accelerator=accelerator.id,
        engine=engine,
        version=version,
        dtype=dtype,
    )


def shape_of(
    model: Model,
    accelerator: Accelerator,
    tensor_parallel: Number,
    dtype: str,
    kv_dtype: str,
    has_links: bool = True,
) -> Shape:
    """What a step of this model on `tensor_parallel` devices moves and computes, all together.

    A bound leaves links out, and so takes devices that have none.
    """
    has_window = bool(model.attention.get("window"))
    return Shape(
        weights_bytes=model.weights_bytes(dtype),
        routed_bytes=routed_bytes(model, dtype) if model.is_moe else 0,
        experts=model.experts if model.is_moe else 1.0,
        top_k=model.top_k if model.is_moe else 1.0,
        flop_per_token=model.flop_per_token(),
        attention_flop_per_token_token=_slope(model, *FULL, "mla", "csa"),
        window_flop_per_token_token=_slope(model, *CAPPED),
        window_tokens=model.window_tokens if has_window else model.context_tokens,
        kv_bytes_per_token=_growing_bytes(model, kv_dtype, tensor_parallel),
        window_bytes_per_token=_window_bytes(model, kv_dtype, tensor_parallel),
        state_bytes_per_token=_state_bytes(model),
        hidden_bytes_per_token=row_bytes_per_token(model.hidden, dtype_bytes(_ACTIVATIONS)),
        layers=model.layers,
        tensor_parallel=tensor_parallel,
        memory_bytes_per_s=accelerator.memory_bytes_per_s,
        peak_flop_per_s=widened_flop_per_s(model, accelerator, dtype),
        link_bytes_per_s=accelerator.link_bytes_per_s if has_links else None,
        one_tokens=_one_token(),
    )


def widened_flop_per_s(model: Model, accelerator: Accelerator, dtype: str) -> Quantity:
    """The rate of the products: a device without units for the weights' type widens them to bf16.

    So do the weight-only kernels of every engine; the derivation names the rate that was taken.
    """
    held = model.native_dtypes["experts"] if dtype == "native" else dtype
    if accelerator.multiplies(held):
        return accelerator.flop_per_s(held)
    widened = f"{accelerator.name} has no units for {held}: widened to bf16"
    return accelerator.flop_per_s("bf16").but(note=widened)


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


def routed_bytes(model: Model, dtype: str) -> Quantity:
    """The weights of all routed experts."""
    kind = model.native_dtypes["experts"] if dtype == "native" else dtype
    return (model.routed_params * dtype_bytes(kind)).named("routed_bytes")


def _growing_bytes(model: Model, kv_dtype: str, ranks: Number) -> Quantity:
    """A token's cache in layers that grow, on all ranks together; keys of an indexer are whole."""
    one = model.kv_bytes_per_token_per_rank(kv_dtype, ranks)
    if "indexer" in model.attention:
        one = one + model.index_bytes_per_token()
    return (one * ranks).named("kv_bytes_per_token_all_ranks")


def _window_bytes(model: Model, kv_dtype: str, ranks: Number) -> Quantity:
    """A token's cache in layers with a window, from what a full window holds."""
    if not model.attention.get("window"):
        return given(0, "B/token", source="no layers with a window")
    held = model.fixed_bytes_per_sequence_per_rank(kv_dtype, ranks) * ranks
    return (held / model.window_tokens).named("window_bytes_per_token")


def _state_bytes(model: Model) -> Quantity:
    if not model.linear_layers.value:
        return given(0, "B/token", source="no recurrent layers")
    assert not model.attention.get("window"), "the catalog has no model with windows and states"
    return (model.fixed_bytes_per_sequence() / _one_token()).named("state_bytes_per_token")
