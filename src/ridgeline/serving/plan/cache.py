"""The KV cache: what a token, a sequence and a rank keep, by the layout of attention."""

from ridgeline.catalog.accelerators import dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.memory import sequences_that_fit
from ridgeline.physics.size import kv_bytes_per_token, kv_bytes_per_token_per_rank
from ridgeline.quantity import Number, Quantity, given
from ridgeline.serving.plan.splits import check_decodes, check_tensor_parallel
from ridgeline.topics import DTYPES, Answer, a_model, amount, choice, count, topic


@topic("kv-cache", subject="serving")
def kv_cache(
    model: Model = a_model("llama-3.1-70b"),
    context_tokens: Number = amount("8k", "tokens", "Tokens of one sequence.", least="1"),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    tensor_parallel: Number = count(8, "Devices that heads are split over.", noun="GPUs"),
    pool_bytes: Number = amount("400 GB", "B", "Memory for caches on all those devices together."),
) -> Answer:
    """What a token and a sequence keep, what each rank keeps of it, and how many sequences fit."""
    check_decodes(model)
    check_tensor_parallel(model, tensor_parallel)
    sequence = model.cache_bytes(context_tokens, kv_dtype).named("sequence_bytes")
    rank = model.cache_bytes_per_rank(context_tokens, kv_dtype, tensor_parallel)
    group = (tensor_parallel * rank).named("group_bytes", note="on all ranks, replicas included")
    return Answer(
        "{kv_bytes_per_token} grow with the context; {sequence_bytes} at {context_tokens}, "
        "{rank_bytes} of it on each of {tensor_parallel}; {sequences} fit {pool_bytes}",
        {
            "kv_bytes_per_token": model.kv_bytes_per_token(kv_dtype),
            "sequence_bytes": sequence,
            "fixed_bytes": model.fixed_bytes_per_sequence(kv_dtype).named("fixed_bytes"),
            "rank_bytes": rank.named("rank_bytes"),
            "replication": (group / sequence).named("replication", "x"),
            "sequences": sequences_that_fit(pool_bytes, group).named("sequences", "sequences"),
        },
        table=_parts(model, context_tokens, kv_dtype),
        notes=_notes(model),
    )


def _parts(model: Model, context: Number, kv_dtype: str) -> tuple[dict[str, Quantity | str], ...]:
    """Which layers keep what."""
    parts: list[tuple[Quantity, str, Quantity]] = []
    if model.growing_layers.value:
        grows = model.kv_bytes_per_token(kv_dtype) * context
        parts.append((model.growing_layers, "every token", grows))
    if "indexer" in model.attention:
        keys = model.index_bytes_per_token() * context
        parts.append((model.growing_layers, "a key of each token, to find it by", keys))
    if model.linear_layers.value:
        states = model.fixed_bytes_per_sequence(kv_dtype)
        parts.append((model.linear_layers, "a state", states))
    if model.capped_layers.value:  # none of the catalog's models has windows beside states
        told = f"the last {model.window_tokens.value:,.0f} tokens"
        kept = model.cache_bytes(context, kv_dtype)
        for _, _, other in parts:
            kept = kept - other
        parts.append((model.capped_layers, told, kept.named("windows_bytes")))
    return tuple({"layers": n, "keep": told, "bytes": size} for n, told, size in parts)


def _notes(model: Model) -> tuple[str, ...]:
    notes = []
    if model.data.get("head_dim") and model.attention.get("kind") in ("gqa", "mha"):
        width = model.heads.value * model.head_dim.value
        if width != model.hidden.value:
            notes.append(
                f"A head is {model.head_dim.value:.0f} wide, not hidden / heads = "
                f"{model.hidden.value / model.heads.value:.0f}: sizing from the hidden width fails."
            )
    if "kv_lora_rank" in model.attention:
        notes.append(
            "One latent serves all heads, so every rank of the tensor group keeps it whole."
        )
    if model.capped_layers.value:
        notes.append("Layers with a window keep that much and no more; they are capped, not free.")
    if model.linear_layers.value:
        notes.append(
            "The states of linear layers do not grow, but a short sequence pays them in full."
        )
    return tuple(notes)


@topic("attention-layouts", subject="serving")
def attention_layouts(
    model: Model = a_model("llama-3.1-70b", "Model with a key and a value a head."),
    against: Model = a_model("deepseek-v3", "Model with another layout, such as a latent cache."),
    tensor_parallel: Number = count(8, "Devices that heads are split over.", noun="GPUs"),
    context_tokens: Number = amount("8k", "tokens", "Tokens of one sequence.", least="1"),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
) -> Answer:
    """How many bytes a token keeps with full, grouped, one or latent heads, in all and a rank."""
    for one in (model, against):
        if not one.growing_layers.value:
            raise SpecError(
                f"no layer of {one.name} keeps every token",
                where="against" if one is against else "model",
                remedy="kv-cache has its windows and states",
            )
    check_tensor_parallel(model, tensor_parallel)
    value = dtype_bytes(kv_dtype)
    grouped, other = model.kv_bytes_per_token(kv_dtype), against.kv_bytes_per_token(kv_dtype)
    full = kv_bytes_per_token(model.layers, model.heads, model.head_dim, value)
    same_depth = (model.layers * other / against.growing_layers).named(
        "other_at_equal_depth_bytes_per_token"
    )
    ranks = [_per_rank(one, kv_dtype, tensor_parallel) for one in (model, against)]
    return Answer(
        "At equal depth full heads keep {full_to_other} what {against} keeps; as they are, {model} "
        "keeps {grouped_to_other} as much in all, and {grouped_to_other_per_rank} as much on each "
        "of {tensor_parallel}",
        {
            "full_to_other": (full / same_depth).named("full_to_other", "x"),
            "grouped_to_other": (grouped / other).named("grouped_to_other", "x"),
            "grouped_to_other_per_rank": (ranks[0] / ranks[1]).named(
                "grouped_to_other_per_rank", "x"
            ),
            "context_ratio": _context_ratio(model, against, context_tokens, kv_dtype),
            "full_to_other_model": (full / other).named("full_to_other_model", "x"),
        },
        table=_layouts(model, (same_depth, against), tensor_parallel, kv_dtype),
        notes=(
            "A latent is shared by all heads, so tensor parallelism replicates it while it splits "
            "grouped heads: on one card the order can reverse unless attention is data-parallel.",
        ),
    )


def _per_rank(model: Model, kv_dtype: str, ranks: Number) -> Quantity:
    one = model.kv_bytes_per_token_per_rank(kv_dtype, ranks)
    return one.named(f"{model.id}.kv_bytes_per_token_per_rank")


def _context_ratio(model: Model, against: Model, context: Number, kv_dtype: str) -> Quantity:
    """How much longer a context the other model holds in the memory of this one's."""
    ratio = model.cache_bytes(context, kv_dtype) / against.cache_bytes(context, kv_dtype)
    return ratio.named("context_ratio", "x", note="at equal memory, windows and states included")


def _layouts(
    model: Model, other: tuple[Quantity, Model], ranks: Number, kv_dtype: str
) -> tuple[dict[str, Quantity | str], ...]:
    """Bytes a token of each layout at the depth of `model`, and of the other model as it is."""
    (same_depth, against), value = other, dtype_bytes(kv_dtype)
    one = given(1, name="one_head")
    per_head = {"full heads (MHA)": model.heads, "grouped (GQA)": model.kv_heads, "one (MQA)": one}
    rows: list[dict[str, Quantity | str]] = []
    for layout, heads in per_head.items():
        whole = kv_bytes_per_token(model.layers, heads, model.head_dim, value)
        rank = kv_bytes_per_token_per_rank(model.layers, heads, model.head_dim, value, ranks)
        rows.append(_row(layout, whole, rank, same_depth))
    whole, rank = against.kv_bytes_per_token(kv_dtype), _per_rank(against, kv_dtype, ranks)
    deep = model.layers / against.growing_layers
    rows.append(_row(f"{against.name}, as deep", same_depth, rank * deep, same_depth))
    rows.append(_row(f"{against.name} as it is", whole, rank, same_depth))
    return tuple(rows)


def _row(
    layout: str, whole: Quantity, rank: Quantity, other: Quantity
) -> dict[str, Quantity | str]:
    return {
        "layout": layout,
        "bytes per token": whole,
        "on each rank": rank,
        "of the other": (whole / other).named("times_the_other", "x"),
    }
