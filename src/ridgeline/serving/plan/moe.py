"""Large mixtures of experts: whether one fits a node, and what a step reads of it."""

from ridgeline.catalog.accelerators import Accelerator, accelerators
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.quantity import Number, Quantity, ceil, given
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode, an_engine, one_token
from ridgeline.serving.plan.splits import points
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@topic("moe-fit", subject="serving")
def moe_fit(
    model: Model = a_model("deepseek-v3", "Model with experts."),
    accelerator: Accelerator = an_accelerator("h200-sxm"),
    gpus: Number = count(8, "Devices of a node.", noun="GPUs"),
    nodes: Number = count(1, "Nodes that share one copy.", noun="nodes"),
    batch: Number = count(32, "Sequences that decode together.", noun="sequences"),
    context_tokens: Number = amount("8k", "tokens", "Tokens that each has cached.", least="1"),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    dtype: str = choice("fp8", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    engine: str = an_engine(),
) -> Answer:
    """Whether a large mixture of experts fits, how many experts a step reads, how long it takes."""
    if not model.is_moe:
        raise SpecError(f"{model.name} is dense", where="model", remedy="deepseek-v3, kimi-k3, ...")
    devices = (gpus * nodes).named("devices", "GPUs")
    decode = Decode(model, accelerator, devices, dtype, kv_dtype, whole_cache=True, engine=engine)
    node = (gpus * accelerator.memory_bytes).named("node_bytes")
    caches = (batch * decode.sequence_bytes(context_tokens)).named("batch_cache_bytes")
    needed = (decode.weights_bytes + caches).named("needed_bytes")
    wanted = ceil(needed / (node * memory_share)).named("nodes_needed", "nodes")
    touched = decode.experts_touched(batch).named("experts_touched", "experts")
    step, alone = decode.step_s(batch, context_tokens), _alone(decode, context_tokens)
    fits, binds = max(points(wanted - nodes)) <= 0, decode.binds(step)
    return Answer(
        f"{'It fits' if fits else 'It does not fit'} {{nodes}} of {{gpus}}: {{weights_bytes}} of "
        "weights are {weights_in_nodes} of a node's memory, {nodes_needed} needed; {batch} read "
        f"{{experts_touched}} of {model.experts.value:.0f} a layer in {{step_s}} ({binds} "
        "binds)",
        {
            "nodes_needed": wanted,
            "weights_bytes": decode.weights_bytes.named("weights_bytes"),
            "weights_in_nodes": (decode.weights_bytes / node).named("weights_in_nodes", "x"),
            "least_device_bytes": (needed / (devices * memory_share)).named("least_device_bytes"),
            "kv_bytes_per_token": model.kv_bytes_per_token(kv_dtype),
            "experts_touched": touched,
            "read_bytes": decode.read_bytes(batch).named("read_bytes"),
            "step_s": step,
            "alone_tokens_per_s": alone,
            "total_to_active": (model.params / model.active_params).named("total_to_active", "x"),
        },
        table=_devices(decode, gpus * memory_share, needed),
        notes=_notes(decode, batch, touched),
        ok=fits,
    )


def _alone(decode: Decode, context: Number) -> Quantity:
    """The tokens a second that one sequence alone gets: a batch of one; the most, if a bound."""
    one = given(1, "sequences", name="one_sequence")
    rate = one_token() / decode.step_s(one, context)
    note = "fitted" if decode.is_fitted else "a bound: no latency of links, no launches"
    return rate.named("alone_tokens_per_s", note=note)


def _devices(
    decode: Decode, usable: Quantity, needed: Quantity
) -> tuple[dict[str, Quantity | str], ...]:
    """The node that was asked for, and one of each accelerator that fits, smallest first."""
    rows: list[dict[str, Quantity | str]] = []
    fitting = [one for one in accelerators() if one.data.get("memory")]
    for one in sorted(fitting, key=lambda one: float(one.memory_bytes.value)):
        room = (usable * one.memory_bytes).named("usable_bytes")
        fits = min(points(room - needed)) >= 0
        if one.id != decode.accelerator.id and not fits:
            continue
        rows.append(
            {
                "devices": one.name,
                "usable on a node": room,
                "weights and caches": needed,
                "fits": "yes" if fits else "no",
            }
        )
    return tuple(rows[:_MOST_ROWS])


# Past the smallest nodes that fit, more are no news.
_MOST_ROWS = 7


def _notes(decode: Decode, batch: Number, touched: Quantity) -> tuple[str, ...]:
    share = max(points(touched)) / float(decode.model.experts.value)
    return (
        f"A step of {max(points(batch)):,.0f} reads {share:.0%} of the experts, not the active "
        "parameters: each token picks its own, E (1 - (1 - k/E)^B) distinct ones in all.",
        "Caches are counted once, as with attention parallel over sequences; over heads, a latent "
        "cache is kept by every rank.",
        decode.told(),
    )
