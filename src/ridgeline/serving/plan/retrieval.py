"""Retrieval-augmented answers at a rate of queries: latency by stage, fleets, what caching does."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.prompts import affordable_tokens
from ridgeline.physics.roofline import compute_s
from ridgeline.quantity import Number, Quantity, ceil, floor, holds, largest
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@topic("retrieval-fleet", subject="serving")
def retrieval_fleet(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices of one node.", noun="GPUs"),
    queries_per_s: Number = amount("10000queries/s", "queries/s", "Rate of queries."),
    prompt_tokens: Number = amount("1000", "tokens", "Prompt with its passages.", least="1"),
    output_tokens: Number = amount("200", "tokens", "Answer of a query."),
    nodes: Number = count(200, "Nodes there are for the model.", noun="nodes"),
    small_nodes: Number = count(60, "Nodes that should do once answers are cached.", noun="nodes"),
    hit_rate: Number = amount("0.3", "", "Share of queries answered from a cache.", most="0.99"),
    mfu: Number = amount("0.5", "", "Share of the peak that prefill reaches.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
    embed_s: Number = amount("10ms", "s", "Embedding a query."),
    search_s: Number = amount("20ms", "s", "Searching the index."),
    rerank_s: Number = amount("50ms", "s", "Reranking the passages."),
    embed_per_s: Number = amount("2000queries/s", "queries/s", "What one embedding server does."),
    search_per_s: Number = amount("1000queries/s", "queries/s", "What one index replica does."),
    rerank_per_s: Number = amount("200queries/s", "queries/s", "What one reranker does."),
) -> Answer:
    """How many nodes a rate of retrieval queries takes, and what prompt or hit rate a fleet allows.

    The model's fleet is sized by prefill alone, which is its lower bound; the decoding rate that
    each node has to add is told beside it.
    """
    rate = (gpus * accelerator.flop_per_s(dtype) * mfu).named("node_achieved_flop_per_s")
    linear = model.flop_per_token()
    needed = (queries_per_s * prompt_tokens * linear / rate).named("prefill_nodes_exact", "nodes")
    allowed = affordable_tokens(nodes * rate / queries_per_s, linear)
    missing = largest(none=0 * needed, hits=1 - small_nodes / needed)
    cached = ceil(needed * (1 - hit_rate)).named("nodes_with_cache", "nodes")
    prefill = compute_s(model.prefill_flop(prompt_tokens), rate).named("prefill_s", "ms")
    stages = {
        "embed": (embed_s, embed_per_s),
        "search": (search_s, search_per_s),
        "rerank": (rerank_s, rerank_per_s),
    }
    first = (embed_s + search_s + rerank_s + prefill).named("first_token_s", "ms")
    passing = largest(none=0 * needed, hits=1 - small_nodes / nodes)
    decode = (queries_per_s * (1 - hit_rate) * output_tokens / cached).named("decode_tokens_per_s")
    return Answer(
        "{queries_per_s} of {prompt_tokens} take {prefill_nodes} for prefill alone; {nodes} allow "
        "{prompt_tokens_allowed} a query, and {small_nodes} would need a hit rate of "
        "{hit_rate_needed} of what {nodes} serve ({hit_rate_needed_here} at these prompts)",
        {
            "prefill_nodes": ceil(needed).named("prefill_nodes", "nodes"),
            "prompt_tokens_allowed": floor(allowed).named("prompt_tokens_allowed", "tokens"),
            "hit_rate_needed": passing.named("hit_rate_needed", "%"),
            "hit_rate_needed_here": missing.named("hit_rate_needed_here", "%"),
            "nodes_with_cache": cached,
            "decode_tokens_per_s": decode,
            "first_token_s": first,
        },
        table=(
            *(_stage(name, one, per, queries_per_s) for name, (one, per) in stages.items()),
            {"stage": "prefill, misses only", "latency": prefill, "servers": cached},
        ),
        notes=(
            "Hits of an answer cache skip all stages after the embedding; hits of a prefix cache "
            "save only the prefill of what is shared.",
            *_faster(accelerator, dtype),
            "A hit rate is an input, not a result: measure how often questions repeat, and how "
            "often a near match is a wrong answer.",
        ),
        ok=holds(cached <= nodes),
    )


def _faster(accelerator: Accelerator, dtype: str) -> tuple[str, ...]:
    """What fp8 arithmetic would make of the fleet, where the devices have it."""
    if not accelerator.multiplies("fp8"):
        return ()
    share = accelerator.flop_per_s(dtype) / accelerator.flop_per_s("fp8")
    if not holds(share < 1):
        return ()
    return (f"In fp8 arithmetic the fleet would be {show(share.named('', '%'))} of this one.",)


def _stage(
    name: str, latency: Number, per_server: Number, queries_per_s: Number
) -> dict[str, Quantity | str]:
    servers = ceil(queries_per_s / per_server)
    return {
        "stage": name,
        "latency": latency,
        "servers": servers.named(f"{name}_servers", "replicas"),
    }
