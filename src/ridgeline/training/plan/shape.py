"""What a training step is asked about: the work, the machine, the layout, and what comes out.

Numbers of any kind: arrays of thousands of layouts in a search, quantities in an answer. Degrees
are counts of ranks; a layout is tensor x context x pipeline x data, and experts are split over
ranks of data x context.
"""

from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.quantity import Number, Quantity, value_of
from ridgeline.training.plan.activations import Block, Kept, block_of

#: Three passes of arithmetic a step: forward, and a backward of twice its work.
PASSES = 3.0


@dataclass(frozen=True, slots=True)
class Work:
    """The model and the batch: what has to be stored, multiplied and sent."""

    block: Block
    layers: Number
    layer_params: Number
    routed_layer_params: Number
    embedding_params: Number
    head_params: Number
    active_params: Number
    moe_share: Number
    top_k: Number
    experts: Number
    vocab: Number
    sequence_tokens: Number
    batch: Number
    attention_flop: Number


@dataclass(frozen=True, slots=True)
class Machine:
    """The chips, their links, and the shares of each that training reaches.

    Attention and the output head stay in 16 bits (`wide`) whatever the other products are in.
    """

    gpus: Number
    memory_bytes: Number
    memory_bytes_per_s: Number
    peak_flop_per_s: Number
    wide_flop_per_s: Number
    link_bytes_per_s: Number
    nic_bytes_per_s: Number
    domain: Number
    per_node: Number
    matmul_share: Number
    attention_share: Number
    overlap: Number
    data_overlap: Number
    link_latency_s: Number
    nic_latency_s: Number
    gradient_bytes: Number
    value_bytes: Number


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism, the schedule, and what is sharded and computed again."""

    tensor: Number
    pipeline: Number
    context: Number
    expert: Number
    data: Number
    chunks: Number
    micro_batch: Number
    zero: Number
    kept: Kept
    again: Number

    @property
    def replicas(self) -> Number:
        """Ranks that hold the same parameters: those the state can be sharded over."""
        return named(self.data * self.context, "replicas")


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a layout takes, on the rank that has the most."""

    state_bytes: Number
    activation_bytes: Number
    memory_bytes: Number
    micro_batches: Number
    bubble: Number
    compute_s: Number
    tensor_s: Number
    context_s: Number
    expert_s: Number
    pipeline_s: Number
    data_s: Number
    step_s: Number
    mfu: Number


def bare(one: Any) -> Any:
    """The same record with floats for quantities, for a search."""
    inner = {
        name: bare(part) if hasattr(part, "__dataclass_fields__") else value_of(part)
        for name in one.__dataclass_fields__
        for part in (getattr(one, name),)
    }
    return type(one)(**inner)


def named(number: Number, name: str, unit: str = "", note: str = "") -> Number:
    """A step with a name where numbers have a past; the bare number in a search."""
    return number.named(name, unit, note=note) if isinstance(number, Quantity) else number


def work_of(model: Model, sequence_tokens: Number, batch: Number) -> Work:
    """What the model asks of any layout."""
    dense, routed = model.dense_params, model.routed_params
    body = (dense - model.embedding_params) / model.layers
    one = model.layers / model.layers
    return Work(
        block=block_of(model),
        layers=model.layers,
        layer_params=body.named("layer_params", "params"),
        routed_layer_params=(routed / model.layers).named("routed_layer_params", "params"),
        embedding_params=model.embedding_params,
        head_params=(model.vocab * model.hidden).named("head_params", "params"),
        active_params=model.active_params,
        moe_share=model.moe_layers / model.layers if model.is_moe else one * 0.0,
        top_k=model.top_k if model.is_moe else one,
        experts=model.experts if model.is_moe else one,
        vocab=model.vocab,
        sequence_tokens=sequence_tokens,
        batch=batch,
        attention_flop=model.attention_flop(sequence_tokens).named("attention_flop"),
    )


def machine_of(accelerator: Accelerator, dtype: str, **given: Number) -> Machine:
    """The chips of a catalog row with what was assumed of them."""
    return Machine(
        memory_bytes=accelerator.memory_bytes,
        memory_bytes_per_s=accelerator.memory_bytes_per_s,
        peak_flop_per_s=accelerator.flop_per_s(dtype),
        wide_flop_per_s=accelerator.flop_per_s("bf16"),
        domain=accelerator.domain,
        per_node=accelerator.per_node,
        **given,
    )
