"""Expert parallelism in training: what the all-to-all moves against what the experts compute."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.parallel import exchange_bytes_per_token, exposed_s, visited_nodes
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.quantity import Number
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.training.plan.shape import PASSES

#: Dispatch and combine; and each of them forward and backward.
_WAYS = 2


@topic("expert-all-to-all", subject="training")
def expert_all_to_all(
    model: Model = a_model("deepseek-v3"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    sequence_tokens: Number = amount("4k", "tokens", "Tokens of a sequence.", least="1"),
    rank_tokens: Number = amount("4k", "tokens", "Tokens a rank sends in one layer.", least="1"),
    nodes: Number = count(8, "Nodes that the experts are spread over.", noun="nodes"),
    node_limit: Number = count(4, "Nodes that the router lets a token visit.", noun="nodes"),
    link: Number = amount("400 Gb/s", "Gb/s", "Network of each device.", least="1 Gb/s"),
    dispatch_dtype: str = choice("fp8", DTYPES, "Type in which tokens go out."),
    combine_dtype: str = choice("bf16", DTYPES, "Type in which results come back."),
    compute_dtype: str = choice("fp8", ("bf16", "fp8"), "Type of the matrix products."),
    mfu: Number = amount("0.4", "", "Share of the peak that is reached.", least="0.001", most="1"),
    hot_load: Number = amount("1.2", "", "Load of the hottest rank over the mean.", least="1"),
    overlap: Number = amount(
        "0", "", "Share of the layer's arithmetic that traffic hides in.", most="1"
    ),
) -> Answer:
    """Whether tokens on their way to experts take as long as the arithmetic of their layer."""
    if not model.is_moe:
        raise SpecError(
            f"{model.name} is dense: it has no experts to exchange tokens with",
            where="model",
            remedy="a mixture, such as deepseek-v3 or qwen3-235b-a22b",
        )
    visited = visited_nodes(model.top_k, nodes, node_limit)
    a_token = exchange_bytes_per_token(
        visited, model.hidden, dtype_bytes(dispatch_dtype), dtype_bytes(combine_dtype)
    )
    moved = (a_token * rank_tokens).named("bytes_per_rank")
    sent = read_s(moved, link).named("exchange_s")
    weights = model.flop_per_token() / model.layers
    scores = model.attention_flop(sequence_tokens) / (model.layers * sequence_tokens)
    flop = ((weights + scores) * rank_tokens).named(
        "layer_flop", note="forward, with causal scores"
    )
    spent = compute_s(flop, accelerator.flop_per_s(compute_dtype), mfu).named("layer_s")
    hidden = model.expert_params * model.top_k
    experts_flop = (model.flop_per_token() / model.active_params * hidden * rank_tokens).named(
        "experts_flop"
    )
    experts_s = compute_s(experts_flop, accelerator.flop_per_s(compute_dtype), mfu)
    stall = ((hot_load - 1) * (experts_s + sent)).named(
        "hot_stall_s", note="all ranks wait for the hottest one's experts and link"
    )
    unlimited = visited_nodes(model.top_k, nodes, nodes)
    return Answer(
        "each layer's exchange takes {ratio} of its arithmetic: {exchange_s} against {layer_s} "
        "for {rank_tokens}; the hottest rank adds {hot_stall_s}",
        {
            "ratio": (sent / spent).named("ratio", "x", note="forward"),
            "ratio_of_step": (sent / spent * _WAYS / PASSES).named(
                "ratio_of_step", "x", note="backward sends as much and computes twice"
            ),
            "bytes_per_rank": moved,
            "exchange_s": sent,
            "layer_s": spent,
            "exposed_s": exposed_s(sent, overlap * spent).named("exposed_exchange_s"),
            "hot_stall_s": stall,
            "exchanges_per_layer": (visited / visited * _WAYS * _WAYS).named(
                "exchanges_per_layer", note="dispatch and combine, forward and backward"
            ),
            "ratio_without_limit": (sent / spent * unlimited / visited).named(
                "ratio_without_limit", "x", note="a token to each node of its experts"
            ),
        },
        notes=(
            "the router's node limit is what keeps the ratio down: without it a token may visit as "
            "many nodes as it has experts",
            "bytes within a node travel over NVLink and are not counted",
        ),
    )
