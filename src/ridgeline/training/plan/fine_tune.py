"""Fine-tuning all weights or adapters: state, devices, and the activations that both pay."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.training import training_state_bytes
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.training.plan.activations import (
    RECOMPUTE,
    block_of,
    kept_bytes_per_token,
    micro_batch_bytes,
)
from ridgeline.training.plan.adapters import TARGETS, adapter_params

#: State of one trained parameter, bytes: weight, gradient, and what the optimizer keeps.
OPTIMIZERS = {"adam": 16.0, "adam-8bit": 10.0, "adam-bf16": 8.0, "sgd-momentum": 12.0}
_TOLD = {
    "adam": "2 + 2, and 32-bit master, momentum and variance",
    "adam-8bit": "2 + 2, a 32-bit master and two 8-bit moments",
    "adam-bf16": "2 + 2, and two 16-bit moments, no master copy",
    "sgd-momentum": "2 + 2, a 32-bit master and momentum",
}

#: What the usual figures leave out.
_BARE = "state alone, all memory used"


def state_of(params: Quantity, optimizer: str, name: str) -> Quantity:
    """Bytes of training so many parameters with that optimizer."""
    each = given(
        OPTIMIZERS[optimizer],
        "B",
        name=f"{optimizer}_bytes",
        provenance=Provenance.DEFINED,
        source=_TOLD[optimizer],
    )
    return training_state_bytes(params, each).named(name)


@topic("fine-tune-memory", subject="training")
def fine_tune_memory(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    rank: Number = count(16, "Rank of the adapters."),
    targets: str = choice("all-linear", TARGETS, "Matrices that get an adapter."),
    optimizer: str = choice("adam", tuple(OPTIMIZERS), "Optimizer of what is trained."),
    base_dtype: str = choice(
        "bf16", ("bf16", "fp8"), "Type of the frozen weights beside adapters."
    ),
    sequence_tokens: Number = amount("4k", "tokens", "Tokens of a sequence.", least="1"),
    micro_batch: Number = count(1, "Sequences that pass at once.", noun="sequences"),
    recompute: str = choice("full", tuple(RECOMPUTE), "What the backward computes again."),
    memory_share: Number = amount(
        "0.9", "", "Share of memory for state and activations.", least="0.01", most="1"
    ),
) -> Answer:
    """Full fine-tuning against LoRA: devices with activations, state, and what both pay.

    Devices are counted with the activations of a micro-batch and with room left for the runtime.
    Beside them stand the usual figures, `full_gpus` and `lora_gpus`: state alone, memory full.
    """
    full = state_of(model.params, optimizer, "full_state_bytes")
    trained = adapter_params(model, rank, targets)
    frozen = (model.params * dtype_bytes(base_dtype)).named("frozen_bytes")
    adapter = state_of(trained, optimizer, "adapter_state_bytes")
    lora = (frozen + adapter).named("lora_bytes")
    line, whole = (
        kept_bytes_per_token(
            block_of(model), "swiglu", RECOMPUTE[level], tensor_parallel=1.0, sequence_parallel=1.0
        )
        * (sequence_tokens * micro_batch)
        for level in (recompute, "none")
    )
    both = micro_batch_bytes(recompute, line, whole, model.layers).named("activation_bytes")
    card = accelerator.memory_bytes
    usable = (card * memory_share).named("usable_bytes")
    full_total = (full + both).named("full_with_activations_bytes")
    lora_total = (lora + both).named("lora_with_activations_bytes")
    return Answer(
        "all weights of {model} take {full_gpus_with_activations}, adapters of rank {rank} take "
        "{lora_gpus_with_activations}, on {accelerator} with {memory_share} of its memory: "
        "{full_state_bytes} of state against {lora_bytes}, and {activation_bytes} of activations",
        {
            "full_gpus_with_activations": ceil(full_total / usable).named(
                "full_gpus_with_activations", "GPUs"
            ),
            "lora_gpus_with_activations": ceil(lora_total / usable).named(
                "lora_gpus_with_activations", "GPUs"
            ),
            "full_state_bytes": full,
            "full_gpus": ceil(full / card).named("full_gpus", "GPUs", note=_BARE),
            "frozen_bytes": frozen,
            "adapter_state_bytes": adapter,
            "lora_bytes": lora,
            "lora_gpus": ceil(lora / card).named("lora_gpus", "GPUs", note=_BARE),
            "adapter_params": trained,
            "activation_bytes": both,
            "saved": (full / lora).named("saved", "x"),
        },
        notes=(
            "one micro-batch is counted, split over the devices as tensor or pipeline ranks do; "
            "where each device has its own (sharded data parallel), each holds all of "
            "activation_bytes",
            "adapters do not save activations: gradients still flow through every layer",
            "adapters save gradients and optimizer, not the weights: those stay whole unless "
            "they are quantized (`qlora-memory`)",
        ),
    )
