"""QLoRA: four-bit weights with scales, adapters, and what widening the weights costs."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.physics.size import training_flop, weight_bytes
from ridgeline.physics.training import double_scale_bytes, scale_bytes
from ridgeline.quantity import Number, Provenance, Quantity, given
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, flag, topic
from ridgeline.training.plan.adapters import (
    TARGETS,
    adapter_params,
    linear_params,
    magnitude_params,
)
from ridgeline.training.plan.fine_tune import OPTIMIZERS, state_of

_TABLES = ("bf16", "quantized")


@topic("qlora-memory", subject="training")
def qlora_memory(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    rank: Number = count(16, "Rank of the adapters."),
    targets: str = choice("all-linear", TARGETS, "Matrices that get an adapter."),
    block_size: Number = count(64, "Weights that share a scale.", noun="params"),
    super_block: Number = count(256, "Scales that share a second scale.", least=2),
    double_quantization: bool = flag(True, "Scales are quantized themselves."),
    embeddings: str = choice("bf16", _TABLES, "Whether token tables and head are left in 16 bits."),
    optimizer: str = choice("adam", tuple(OPTIMIZERS), "Optimizer of the adapters."),
    dora: bool = flag(False, "Train a magnitude for each output as well (DoRA)."),
    step_tokens: Number = amount("4k", "tokens", "Tokens between two widenings.", least="1"),
    mfu: Number = amount(
        "0.4", "", "Share of the peak that matrix products reach.", least="0.001", most="1"
    ),
) -> Answer:
    """Bytes of a QLoRA run by part, and the time that widening four-bit weights takes."""
    total = model.params
    inside = total if embeddings == "quantized" else linear_params(model)
    narrow = inside.named("quantized_params", "params")
    payload = weight_bytes(narrow, dtype_bytes("int4")).named("payload_bytes")
    single = scale_bytes(narrow, block_size)
    double = double_scale_bytes(narrow, block_size, super_block)
    scales = (double if double_quantization else single).named("scales_bytes")
    wide = ((total - narrow) * dtype_bytes("bf16")).named("wide_bytes", note="not quantized")
    trained = adapter_params(model, rank, targets)
    adapters = state_of(trained, optimizer, "adapter_state_bytes")
    magnitudes = state_of(magnitude_params(model, targets), optimizer, "dora_bytes")
    if not dora:
        magnitudes = magnitudes.named("dora_bytes", note="what DoRA would add: not in the total")
    whole = payload + scales + wide + adapters
    whole = (whole + magnitudes if dora else whole).named("total_bytes")
    widening = _widening_s(narrow, payload, accelerator)
    work = compute_s(
        training_flop(model.active_params, step_tokens, _flop_frozen()),
        accelerator.flop_per_s("bf16"),
        mfu,
    ).named("arithmetic_s")
    plain = weight_bytes(total, dtype_bytes("bf16")).named("bf16_bytes")
    return Answer(
        "{model} in four bits: {payload_bytes} and {scales_bytes} of scales, {total_bytes} with "
        "adapters; widening takes {widening_share} of the step's arithmetic",
        {
            "base_bytes": (payload + scales + wide).named("base_bytes"),
            "payload_bytes": payload,
            "scales_bytes": scales,
            "wide_bytes": wide,
            "adapter_state_bytes": adapters,
            "dora_bytes": magnitudes,
            "total_bytes": whole,
            "double_saves_bytes": (single - double).named("double_saves_bytes"),
            "bf16_bytes": plain,
            "widening_s": widening,
            "widening_share": (widening / work).named("widening_share", "%"),
        },
        notes=(
            "half a byte a parameter is the payload alone: scales come on top",
            "bitsandbytes leaves token tables and the output head in 16 bits; the usual 35 GB "
            "of a 70B model counts them at four (--embeddings quantized)",
        ),
    )


def _flop_frozen() -> Quantity:
    """A frozen weight costs a forward and the gradient of its input, not its own gradient."""
    return given(
        4.0,
        "FLOP/token",
        name="flop_per_frozen_param_token",
        provenance=Provenance.DEFINED,
        source="forward 2, gradient of the input 2",
    )


def _widening_s(params: Quantity, payload: Quantity, accelerator: Accelerator) -> Quantity:
    """Weights are read narrow and written wide, once forward and once backward."""
    wide = weight_bytes(params, dtype_bytes("bf16")).named("widened_bytes")
    once = read_s(payload + wide, accelerator.memory_bytes_per_s)
    told: Quantity = (once * 2).named("widening_s", note="forward and backward")
    return told
