"""A mixture of experts against a dense model: more memory, less arithmetic, other device counts."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.money import decode_tokens_per_s
from ridgeline.physics.roofline import compute_s
from ridgeline.physics.sharding import tensor_parallel_degree
from ridgeline.physics.size import training_flop
from ridgeline.quantity import Number, Quantity, ceil
from ridgeline.serving.plan.decode import Decode
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@dataclass(frozen=True, slots=True)
class Load:
    """What each of the two has to serve, and in which types."""

    rate: Number
    batch: Number
    context: Number
    memory_share: Number
    dtype: str
    kv_dtype: str


@topic("moe-or-dense", subject="serving")
def moe_or_dense(
    model: Model = a_model("qwen3-235b-a22b", "The mixture, or the first of the two."),
    dense: Model = a_model("llama-3.1-70b", "The dense model, or the other."),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    rate: Number = amount("50000 tokens/s", "tokens/s", "Tokens to decode.", least="1 tokens/s"),
    batch: Number = count(64, "Sequences a replica decodes at once.", noun="sequences"),
    context_tokens: Number = amount("4k", "tokens", "Cached tokens of a sequence.", least="1"),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    tokens: Number = amount("15T", "tokens", "Tokens to train on.", least="1"),
    train_s: Number = amount("90d", "days", "Time to train.", least="1h"),
    mfu: Number = amount("0.4", "", "Share of the peak that dense training reaches.", most="1"),
    moe_mfu: Number = amount(
        "0.3",
        "",
        "The same for a mixture.",
        most="1",
        interval=("0.15", "0.38"),
        source="published runs of mixtures reach 6 to 38 %",
    ),
) -> Answer:
    """Devices to serve and to train a mixture of experts, against a dense model.

    A replica is the next power of two of devices that hold weights and caches, each cache once; a
    decode step reads the experts that the batch visits, not only those one token does.
    """
    pair, load = (model, dense), Load(rate, batch, context_tokens, memory_share, dtype, kv_dtype)
    served = [_sized(one, accelerator, load) for one in pair]
    trained = [
        _trained(one, accelerator, tokens, train_s, moe_mfu if one.is_moe else mfu) for one in pair
    ]
    weights = [one.weights_bytes(dtype) for one in pair]
    cached = [one.cache_bytes(context_tokens, kv_dtype) for one in pair]
    return Answer(
        "{model} takes {memory_ratio} the memory and {compute_ratio} the arithmetic of {dense}: "
        "{serving_gpus} against {dense_serving_gpus} to serve {rate}, {training_gpus} against "
        "{dense_training_gpus} to train in {train_s}",
        {
            "memory_ratio": (weights[0] / weights[1]).named("memory_ratio", "x"),
            "compute_ratio": (model.active_params / dense.active_params).named(
                "compute_ratio", "x"
            ),
            "serving_gpus": served[0]["to serve"],
            "dense_serving_gpus": served[1]["to serve"].named("dense_serving_gpus"),
            "training_gpus": trained[0],
            "dense_training_gpus": trained[1].named("dense_training_gpus"),
            "cache_ratio": (cached[0] / cached[1]).named("cache_ratio", "x"),
        },
        table=tuple(
            {"model": one.name} | row | {"to train": gpus}
            for one, row, gpus in zip(pair, served, trained, strict=True)
        ),
        notes=(
            "Memory and compute move in opposite directions: a mixture trades cheap arithmetic "
            "for devices that hold weights few tokens visit.",
            "A large batch visits nearly all experts, so decoding reads the total, not the active "
            "parameters; only arithmetic follows those.",
        ),
    )


def _sized(model: Model, accelerator: Accelerator, load: Load) -> dict[str, Quantity]:
    """A replica that holds one batch, its decode rate, and the devices for all the traffic."""
    weights = model.weights_bytes(load.dtype)
    cache = (model.cache_bytes(load.context, load.kv_dtype) * load.batch).named("caches_bytes")
    usable = (accelerator.memory_bytes * load.memory_share).named("usable_bytes")
    replica = tensor_parallel_degree(ceil((weights + cache) / usable)).named("replica_gpus", "GPUs")
    decode = Decode(model, accelerator, replica, load.dtype, load.kv_dtype, whole_cache=True)
    step = decode.step_s(load.batch, load.context)
    made = decode_tokens_per_s(load.batch, step).named("replica_tokens_per_s")
    replicas = ceil(load.rate / made).named("replicas", "replicas")
    return {
        "weights": weights,
        "a replica": replica,
        "makes": made,
        "replicas": replicas,
        "to serve": (replicas * replica).named("serving_gpus", "GPUs"),
    }


def _trained(
    model: Model, accelerator: Accelerator, tokens: Number, within: Number, mfu: Number
) -> Quantity:
    """Devices that train so many tokens in time."""
    work = training_flop(model.active_params, tokens)
    one = compute_s(work, accelerator.flop_per_s("bf16"), mfu).named("one_gpu_s")
    return ceil(one / within).named("training_gpus", "GPUs")
