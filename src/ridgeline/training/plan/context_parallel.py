"""Context parallelism: a long sequence over ranks that pass their keys and values round a ring."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.parallel import exposed_s
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.physics.size import kv_bytes_per_token_per_rank
from ridgeline.quantity import Number
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.training.plan.activations import BLOCKS, RECOMPUTE, block_of, kept_bytes_per_token

_WAYS = ("ring", "gather")


@topic("context-parallel", subject="training")
def context_parallel(
    model: Model = a_model("llama-3.1-405b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    sequence_tokens: Number = amount("128k", "tokens", "Tokens of the sequence.", least="1"),
    context_ranks: Number = count(16, "Ranks that split the sequence.", noun="ranks"),
    tensor_parallel: Number = count(8, "Ranks that split each layer.", noun="ranks"),
    block: str = choice("swiglu", BLOCKS, "How a layer is counted: as it is, or by 34 s b h."),
    link: Number = amount("400 Gb/s", "Gb/s", "Rate between context ranks.", least="1 Gb/s"),
    mfu: Number = amount(
        "0.4", "", "Share of the peak that the scores reach.", least="0.001", most="1"
    ),
    exchange: str = choice(
        "ring", _WAYS, "Keys and values pass behind the scores, or before them."
    ),
) -> Answer:
    """What a long sequence takes on each rank, and whether passing its keys and values is seen."""
    if int(sequence_tokens.value) % int(2 * context_ranks.value):
        raise SpecError(
            f"{2 * context_ranks.value:.0f} parts (two a rank, for balance) do not divide "
            f"{sequence_tokens.value:,.0f} tokens",
            where="context-ranks",
            remedy=_even(sequence_tokens, context_ranks),
        )
    layer = kept_bytes_per_token(
        block_of(model),
        block,
        RECOMPUTE["none"],
        tensor_parallel=tensor_parallel,
        sequence_parallel=tensor_parallel,
    )
    whole = (layer * sequence_tokens * tensor_parallel).named("bytes_per_layer")
    share = (whole / context_ranks).named("bytes_per_context_rank")
    kept = (share / tensor_parallel).named("bytes_per_gpu")
    local = (sequence_tokens / context_ranks).named("local_tokens", "tokens")
    a_token = kv_bytes_per_token_per_rank(
        1.0, model.kv_heads, model.head_dim, dtype_bytes("bf16"), tensor_parallel
    )
    hops = (context_ranks - 1).named("hops", "hops")
    ring = read_s(a_token * local * hops, link).named("ring_s")
    scores = model.attention_flop(sequence_tokens) / model.layers
    spent = compute_s(
        (scores / (context_ranks * tensor_parallel)).named("score_flop"),
        accelerator.flop_per_s("bf16"),
        mfu,
    ).named("scores_s")
    behind = (spent * hops / context_ranks).named("behind_s", note="the last part has no hop")
    seen = exposed_s(ring, behind) if exchange == "ring" else ring
    return Answer(
        "{sequence_tokens} over {context_ranks}: {bytes_per_context_rank} a layer on each; "
        "{exposed_s} of the exchange is seen beside {scores_s} of scores",
        {
            "bytes_per_context_rank": share,
            "bytes_per_layer": whole,
            "bytes_per_gpu": kept,
            "all_layers_bytes": (kept * model.layers).named("all_layers_bytes"),
            "ring_s": ring,
            "scores_s": spent,
            "ring_over_scores": (ring / spent).named("ring_over_scores", "x"),
            "exposed_s": seen.named("exposed_s", note="a layer, forward"),
            "least_local_tokens": _least_local(model, accelerator, link, mfu, tensor_parallel),
        },
        notes=(
            "the ratio of ring to scores falls with the local tokens: both bytes and FLOPs grow "
            "with a rank's tokens, the FLOPs once more with the sequence",
            "GQA makes the exchange small: only KV heads are sent, all heads are multiplied",
            "more context ranks are not the only way to save memory: computing activations again "
            "or more tensor ranks save it as well",
        ),
    )


def _even(sequence_tokens: Number, ranks: Number) -> str:
    """The nearest sequences that split evenly, as a remedy."""
    parts = 2 * round(ranks.value)
    below = round(sequence_tokens.value) // parts * parts
    near = [f"{one:,}" for one in (below, below + parts) if one]
    return f"a sequence of {' or '.join(near)} tokens, or fewer ranks"


def _least_local(
    model: Model, accelerator: Accelerator, link: Number, mfu: Number, tensor_parallel: Number
) -> Number:
    """Tokens a rank must hold so that one hop hides behind one block of causal scores.

    A hop brings n tokens of keys and values, and n x n pairs are multiplied, half of them causal.
    """
    a_token = kv_bytes_per_token_per_rank(
        1.0, model.kv_heads, model.head_dim, dtype_bytes("bf16"), tensor_parallel
    )
    one = model.attention_flop(model.context_tokens) / model.layers
    per_pair = one / (model.context_tokens * model.context_tokens) / tensor_parallel
    rate = accelerator.flop_per_s("bf16") * mfu
    return (a_token / link * rate / per_pair).named("least_local_tokens", "tokens")
