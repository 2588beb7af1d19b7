"""What a newer accelerator changes for one model: devices it takes, reads, experts a device."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.roofline import read_s, ridge_flop_per_byte
from ridgeline.physics.sharding import tensor_parallel_degree
from ridgeline.quantity import Number, Quantity, ceil, holds
from ridgeline.serving.plan.decode import Decode
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@topic("accelerator-generations", subject="serving")
def accelerator_generations(
    model: Model = a_model("deepseek-v3"),
    accelerator: Accelerator = an_accelerator("b200-sxm", "The newer accelerator."),
    previous: Accelerator = an_accelerator("h100-sxm", "The one that it is compared with."),
    dtype: str = choice("nvfp4", DTYPES, "Type of the weights on the newer one."),
    previous_dtype: str = choice("fp8", DTYPES, "Type of the weights on the other one."),
    batch: Number = count(32, "Sequences in one decode step.", noun="sequences"),
    context_tokens: Number = amount("4k", "tokens", "Tokens that each sequence holds.", least="1"),
    kv_dtype: str = choice("fp8", DTYPES, "Type of the cache."),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
) -> Answer:
    """What the next generation of accelerators changes for a model: degree, reads, experts.

    The ratio of arithmetic compares bf16 with bf16; narrower weights come on top of it.
    """
    cache = (batch * model.cache_bytes(context_tokens, kv_dtype)).named("cached_bytes")
    newer = _on(model, accelerator, dtype, cache, batch, memory_share)
    older = _on(model, previous, previous_dtype, cache, batch, memory_share)
    compute = accelerator.flop_per_s("bf16") / previous.flop_per_s("bf16")
    bandwidth = accelerator.memory_bytes_per_s / previous.memory_bytes_per_s
    values = {
        "tensor_parallel": newer["degree"],
        "devices": newer["devices"],
        "weights_bytes": newer["weights"],
        "read_s": newer["read"],
        "read_ratio": (older["read"] / newer["read"]).named("read_ratio", "x"),
        "compute_ratio": compute.named("compute_ratio", "x"),
        "bandwidth_ratio": bandwidth.named("bandwidth_ratio", "x"),
        "filled_share": newer["filled"],
    }
    if model.is_moe:
        values["experts_per_device"] = newer["on a device"]
    return Answer(
        "{model} in {dtype} fits {devices} of {accelerator}, so it is split over "
        "{tensor_parallel}; one decode step reads "
        + ("what {batch} visit of its weights" if model.is_moe else "its weights")
        + " in {read_s}",
        values,
        table=({"accelerator": previous.name} | older, {"accelerator": accelerator.name} | newer),
        notes=_notes(model, accelerator, previous),
    )


def _on(
    model: Model,
    accelerator: Accelerator,
    dtype: str,
    cache: Quantity,
    batch: Number,
    memory_share: Number,
) -> dict[str, Quantity]:
    """One accelerator: devices that hold it, the degree, and what a step reads on them."""
    accelerator.flop_per_s(dtype)  # CatalogError where it has no units for this type
    weights = model.weights_bytes(dtype)
    usable = (accelerator.memory_bytes * memory_share).named("usable_bytes")
    devices = ceil((weights + cache) / usable).named("devices", "GPUs")
    degree = tensor_parallel_degree(devices)
    _check_heads(model, degree)
    decode = Decode(model, accelerator, degree, dtype)
    read = read_s(decode.read_bytes(batch), decode.bytes_per_s)
    found = {
        "weights": weights,
        "devices": devices,
        "degree": degree.named("tensor_parallel", "GPUs"),
        "filled": ((weights + cache) / (devices * usable)).named("filled_share", "%"),
        "read": read.named(f"{accelerator.id}.step_read_s", "ms"),
        "ridge": ridge_flop_per_byte(
            accelerator.flop_per_s("bf16"), accelerator.memory_bytes_per_s
        ),
    }
    if model.is_moe:
        spread = ceil(model.experts / accelerator.domain)
        found["on a device"] = spread.named("experts_per_device", "experts")
    return found


def _check_heads(model: Model, degree: Quantity) -> None:
    if not holds(model.heads.value % degree.value == 0):
        raise SpecError(
            f"{show(model.heads)} attention heads of {model.name} do not split over {show(degree)}",
            where="model",
            remedy="fewer sequences, narrower weights, or an accelerator with more memory",
        )


def _notes(model: Model, newer: Accelerator, older: Accelerator) -> tuple[str, ...]:
    told = [
        "Each device holds its share of the weights and reads only what the step's tokens visit.",
        "The memory minimum is a count of devices; engines split in powers of two, so the degree "
        "is the next of them.",
    ]
    if model.is_moe:
        told.append(
            f"Experts spread over one domain at link speed: {older.domain.value:g} devices for "
            f"{older.name}, {newer.domain.value:g} for {newer.name}; beyond it, and for a degree "
            "above it, tokens travel by network."
        )
    return tuple(told)
