"""Activations: what a layer keeps for the backward pass, and what computing it again costs."""

from dataclasses import dataclass

from ridgeline.catalog.models import Model
from ridgeline.physics.size import kv_heads_per_rank
from ridgeline.physics.training import (
    gelu_activation_bytes_per_token,
    recomputed_share,
    score_bytes,
    swiglu_activation_bytes_per_token,
)
from ridgeline.quantity import Number, Quantity
from ridgeline.topics import Answer, a_model, amount, choice, count, flag, topic


@dataclass(frozen=True, slots=True)
class Kept:
    """Vectors of a layer that stay: `whole` and `split` bytes of a GELU block, of SwiGLU counts."""

    whole: Number
    split: Number
    block: Number
    query: Number
    key: Number
    gate: Number
    scores: bool


#: What each policy of recomputation keeps. `scores` is Korthikanti's selective recomputation, which
#: FlashAttention does by itself; `elementwise` computes norms and the gate's product again as well;
#: `full` keeps a layer's input only.
RECOMPUTE = {
    "none": Kept(10, 24, 4, 2, 2, 3, scores=True),
    "scores": Kept(10, 24, 4, 2, 2, 3, scores=False),
    "elementwise": Kept(6, 16, 2, 2, 2, 2, scores=False),
    "full": Kept(2, 0, 1, 0, 0, 0, scores=False),
}
BLOCKS = ("swiglu", "gelu")


@dataclass(frozen=True, slots=True)
class Block:
    """Widths of a transformer layer, as numbers of any kind."""

    hidden: Number
    intermediate: Number
    heads: Number
    kv_heads: Number
    head_dim: Number


def block_of(model: Model) -> Block:
    """The widths of a model's layers; of a mixture, the experts that one token visits."""
    wide = model.intermediate
    if model.is_moe:
        visited = (model.top_k + model.shared_experts).named("visited_experts")
        wide = (visited * model.expert_intermediate).named("visited_intermediate")
    return Block(model.hidden, wide, model.heads, model.kv_heads, model.head_dim)


def kept_bytes_per_token(
    block: Block,
    kind: str,
    kept: Kept,
    *,
    tensor_parallel: Number,
    sequence_parallel: Number,
    gate: Number | None = None,
) -> Number:
    """Bytes a layer keeps of a token on each tensor-parallel rank, scores apart."""
    if kind == "gelu":
        return gelu_activation_bytes_per_token(
            block.hidden, tensor_parallel, sequence_parallel, kept.whole, kept.split
        )
    heads = kv_heads_per_rank(block.kv_heads, tensor_parallel) * tensor_parallel
    return swiglu_activation_bytes_per_token(
        block.hidden,
        block.intermediate,
        block.heads * block.head_dim,
        heads * block.head_dim,
        tensor_parallel,
        sequence_parallel,
        kept.block,
        kept.query,
        kept.key,
        kept.gate if gate is None else gate,
    )


def micro_batch_bytes(level: str, layer: Quantity, whole_layer: Quantity, layers: Number) -> Number:
    """Activations of all layers; where they are computed again, one layer is whole meanwhile."""
    kept = layer * layers
    if RECOMPUTE[level].block == RECOMPUTE["none"].block:
        return kept
    return kept + whole_layer


@topic("activation-memory", subject="training")
def activation_memory(
    model: Model = a_model("llama-3.1-70b"),
    sequence_tokens: Number = amount("8k", "tokens", "Tokens of a sequence.", least="1"),
    micro_batch: Number = count(1, "Sequences that pass at once.", noun="sequences"),
    block: str = choice(
        "swiglu", BLOCKS, "How a layer is counted: as it is, or by the rule 34 s b h."
    ),
    recompute: str = choice("none", tuple(RECOMPUTE), "What is computed again in the backward."),
    flash_attention: bool = flag(True, "Scores stay on the chip and are never kept."),
    fused_gate: bool = flag(True, "The gate's activation is computed again with the product."),
    tensor_parallel: Number = count(1, "Ranks that split each layer.", noun="ranks"),
    sequence_parallel: bool = flag(False, "Norms and inputs are split over the sequence as well."),
) -> Answer:
    """Bytes of activations a layer and a micro-batch keep, and what computing them again costs.

    The rule 34 s b h was derived for a GELU block of width 4 h with dropout. Today's block has
    none of the three; its own count is `--block swiglu`.
    """
    shape = block_of(model)
    tokens = (sequence_tokens * micro_batch).named("micro_batch_tokens")
    split = tensor_parallel if sequence_parallel else tensor_parallel * 0 + 1
    scores = score_bytes(model.heads, sequence_tokens, micro_batch, tensor_parallel)

    def a_layer(kind: str, level: str) -> Quantity:
        kept = RECOMPUTE[level]
        wide_gate = kept.gate + 1 if level in ("none", "scores") and not fused_gate else None
        line = kept_bytes_per_token(
            shape,
            kind,
            kept,
            tensor_parallel=tensor_parallel,
            sequence_parallel=split,
            gate=wide_gate,
        )
        keeps_scores = kept.scores and not flash_attention
        whole = line * tokens + scores if keeps_scores else line * tokens
        return whole.named("bytes_per_layer")

    def a_micro_batch(level: str) -> Quantity:
        kept = micro_batch_bytes(level, a_layer(block, level), a_layer(block, "none"), model.layers)
        again = level in ("elementwise", "full")
        note = "with the one layer that is being computed again" if again else ""
        told: Quantity = kept.named("micro_batch_bytes", note=note)
        return told

    layer, total = a_layer(block, recompute), a_micro_batch(recompute)
    gelu, swiglu = a_layer("gelu", recompute), a_layer("swiglu", recompute)
    weights = model.weights_bytes("bf16").named("weights_bytes")
    return Answer(
        "{model} keeps {bytes_per_layer} a layer and {micro_batch_bytes} for {micro_batch} of "
        "{sequence_tokens}: {over_weights} its weights in 16 bits",
        {
            "bytes_per_layer": layer,
            "micro_batch_bytes": total,
            "over_weights": (total / weights).named("over_weights", "x"),
            "coefficient": _coefficient(layer, tokens, model),
            "gelu_coefficient": _coefficient(gelu, tokens, model),
            "swiglu_coefficient": _coefficient(swiglu, tokens, model),
            "score_bytes": scores.named("scores_without_flash"),
            "recompute_share": _again(model, sequence_tokens, recompute),
        },
        table=tuple(
            {
                "recompute": level,
                "bytes_per_layer": a_layer(block, level),
                "micro_batch_bytes": a_micro_batch(level),
                "extra_arithmetic": _again(model, sequence_tokens, level),
            }
            for level in RECOMPUTE
        ),
        notes=(
            "34 s b h counts a GELU block of width 4 h with dropout; a SwiGLU block without "
            "dropout has its own coefficient, which is near 34 only by luck",
            "two norms a layer are counted, whole on each rank unless the sequence is split",
        ),
    )


def _coefficient(layer: Quantity, tokens: Quantity, model: Model) -> Quantity:
    return (layer / (tokens * model.hidden)).named(
        "coefficient", "B/token", note="and unit of the hidden width"
    )


def _again(model: Model, sequence_tokens: Quantity, level: str) -> Quantity:
    """Extra arithmetic over that of a step: a whole forward pass, the scores, or nothing."""
    attention = model.attention_flop(sequence_tokens).named("attention_flop")
    forward = model.flop_per_token() * sequence_tokens + attention
    none = attention * 0.0 / forward
    parts = {"full": forward / forward, "scores": attention / forward}
    share = recomputed_share(parts.get(level, none))
    return share.named("recompute_share", "%", note="of the arithmetic of a step")
