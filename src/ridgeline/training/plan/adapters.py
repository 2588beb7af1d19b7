"""The matrices that adapters sit beside, and how many values they add."""

from collections.abc import Callable
from dataclasses import dataclass

from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.adapters import low_rank_params
from ridgeline.quantity import Number, Quantity

#: Which matrices get an adapter.
TARGETS = ("all-linear", "attention", "query-value")


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight matrix of a layer."""

    name: str
    inputs: Number
    outputs: Number


def matrices(model: Model, targets: str = "all-linear") -> list[Matrix]:
    """The linear weights of one layer; SpecError for layers that are not dense GQA."""
    if model.is_moe or model.attention.get("kind") not in ("mha", "gqa"):
        raise SpecError(
            f"adapters are counted for dense models with grouped queries, {model.name} is none",
            where="model",
            remedy="llama-3.1-70b, qwen2.5-72b, ...",
        )
    hidden, wide = model.hidden, model.intermediate
    query = (model.heads * model.head_dim).named("query_values")
    key = (model.kv_heads * model.head_dim).named("key_values")
    found = {
        "query": Matrix("query", hidden, query),
        "key": Matrix("key", hidden, key),
        "value": Matrix("value", hidden, key),
        "output": Matrix("output", query, hidden),
        "gate": Matrix("gate", hidden, wide),
        "up": Matrix("up", hidden, wide),
        "down": Matrix("down", wide, hidden),
    }
    chosen = {
        "all-linear": tuple(found),
        "attention": ("query", "key", "value", "output"),
        "query-value": ("query", "value"),
    }[targets]
    return [found[name] for name in chosen]


def adapter_params(model: Model, rank: Number, targets: str) -> Quantity:
    """Values that adapters of that rank train, over all layers."""
    return _over_layers(
        model, targets, lambda one: low_rank_params(rank, one.inputs, one.outputs), "adapter_params"
    )


def linear_params(model: Model) -> Quantity:
    """Weights of all linear matrices: what quantization reaches; neither tables nor norms."""
    return _over_layers(model, "all-linear", lambda one: one.inputs * one.outputs, "linear_params")


def magnitude_params(model: Model, targets: str) -> Quantity:
    """DoRA's magnitudes: one for each output of each adapted matrix."""
    return _over_layers(model, targets, lambda one: one.outputs, "magnitude_params")


def _over_layers(
    model: Model, targets: str, counted: Callable[[Matrix], Number], name: str
) -> Quantity:
    layer: Number = 0
    for one in matrices(model, targets):
        layer = layer + counted(one)
    told: Quantity = (layer * model.layers).named(name, "params")
    return told
