"""A mixture of experts against a dense model: more memory, less arithmetic, other device counts."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.money import decode_tokens_per_s
from ridgeline.physics.roofline import compute_s, read_s, roofline_s
from ridgeline.physics.size import distinct_experts, training_flop
from ridgeline.quantity import Number, Quantity, ceil
from ridgeline.serving.plan.decode import one_token
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


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

    A replica is the fewest devices that hold weights and caches; a decode step reads the experts
    that the batch visits, not only those one token does.
    """
    pair = (model, dense)
    rows = [
        _sized(one, accelerator, rate, batch, context_tokens, memory_share, dtype)
        | _trained(one, accelerator, tokens, train_s, moe_mfu if one.is_moe else mfu)
        for one in pair
    ]
    weights = [one.weights_bytes(dtype) for one in pair]
    cached = [one.kv_bytes_per_token("bf16") for one in pair]
    return Answer(
        "{model} takes {memory_ratio} the memory and {compute_ratio} the arithmetic of {dense}: "
        "{serving_gpus} against {dense_serving_gpus} to serve {rate}",
        {
            "memory_ratio": (weights[0] / weights[1]).named("memory_ratio", "x"),
            "compute_ratio": (model.active_params / dense.active_params).named(
                "compute_ratio", "x"
            ),
            "serving_gpus": rows[0]["serving_gpus"],
            "dense_serving_gpus": rows[1]["serving_gpus"].named("dense_serving_gpus"),
            "training_gpus": rows[0]["training_gpus"],
            "dense_training_gpus": rows[1]["training_gpus"].named("dense_training_gpus"),
            "cache_ratio": (cached[0] / cached[1]).named("cache_ratio", "x"),
        },
        table=tuple({"model": one.name} | row for one, row in zip(pair, rows, strict=True)),
        notes=(
            "memory and compute move in opposite directions: a mixture trades cheap arithmetic "
            "for devices that hold weights few tokens visit",
            "a large batch visits nearly all experts, so decoding reads the total, not the active "
            "parameters; only arithmetic follows those",
        ),
    )


def _sized(
    model: Model,
    accelerator: Accelerator,
    rate: Number,
    batch: Number,
    context: Number,
    share: Number,
    dtype: str,
) -> dict[str, Quantity]:
    """A replica that holds one batch, its decode rate, and the devices for all the traffic."""
    weights = model.weights_bytes(dtype)
    cache = (model.cache_bytes(context, "bf16") * batch).named("cache_bytes")
    usable = (accelerator.memory_bytes * share).named("usable_bytes")
    replica = ceil((weights + cache) / usable).named("replica_gpus", "GPUs")
    read = model.dense_params
    if model.is_moe:
        visited = distinct_experts(model.experts, model.top_k, batch)
        read = read + model.expert_params * model.moe_layers * visited
    read_bytes = (read * dtype_bytes(dtype)).named("step_weights_bytes")
    moved = read_s(read_bytes + cache, replica * accelerator.memory_bytes_per_s)
    flop = model.flop_per_token() * batch * one_token()
    spent = compute_s(flop, replica * accelerator.flop_per_s(dtype))
    made = decode_tokens_per_s(batch, roofline_s(moved, spent)).named("replica_tokens_per_s")
    replicas = ceil(rate / made).named("replicas", "replicas")
    return {
        "weights_bytes": weights,
        "replica_gpus": replica,
        "replica_tokens_per_s": made,
        "replicas": replicas,
        "serving_gpus": (replicas * replica).named("serving_gpus", "GPUs"),
    }


def _trained(
    model: Model, accelerator: Accelerator, tokens: Number, within: Number, mfu: Number
) -> dict[str, Quantity]:
    """Devices that train so many tokens in time."""
    work = training_flop(model.active_params, tokens)
    one = compute_s(work, accelerator.flop_per_s("bf16"), mfu).named("one_gpu_s")
    return {"training_gpus": ceil(one / within).named("training_gpus", "GPUs")}
