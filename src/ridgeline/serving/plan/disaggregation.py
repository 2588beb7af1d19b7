"""Prefill and decode on separate nodes: what the transfer costs, and from which load it pays."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.prompts import decode_steps, interfered_s, split_break_even_hz
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.quantity import Number, Quantity, ceil, holds, smallest
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode
from ridgeline.serving.plan.splits import check_tensor_parallel
from ridgeline.show import show
from ridgeline.topics import (
    DTYPES,
    Answer,
    a_model,
    amount,
    an_accelerator,
    choice,
    count,
    flag,
    topic,
)


@dataclass(frozen=True, slots=True)
class Phases:
    """Both phases of one request on one node."""

    running: Quantity
    prefill_s: Quantity
    step_s: Quantity
    decode_s: Quantity


@topic("prefill-decode-split", subject="serving")
def prefill_decode_split(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices of one node, or of one prefill or decode unit.", noun="GPUs"),
    prompt_tokens: Number = amount("8k", "tokens", "Prompt of a request.", least="1"),
    output_tokens: Number = amount("512", "tokens", "Output of a request.", least="1"),
    requests_per_s: Number = amount(
        "20requests/s", "requests/s", "Load on all nodes.", least="0.0001requests/s"
    ),
    link_bytes_per_s: Number = amount("400Gb/s", "B/s", "What one cache travels over."),
    batch: Number = count(64, "Sequences that a node decodes at once.", noun="sequences"),
    mfu: Number = amount("0.5", "", "Share of the peak that prefill reaches.", most="1"),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    ttft_slo_s: Number = amount("2s", "s", "Time to first token that is promised."),
    tpot_slo_s: Number = amount("50ms", "s", "Time per output token that is promised."),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    whole_cache: bool = flag(False, "Whether a sequence's cache lies whole on one device."),
) -> Answer:
    """Whether prefill and decode belong on separate nodes, and how many of each it takes.

    Together, prompts stretch every stream's steps; apart, each cache travels once. Decode is taken
    as memory-bound, prefill as compute-bound.
    """
    check_tensor_parallel(model, gpus)
    node = Decode(model, accelerator, gpus, dtype, kv_dtype, mfu=mfu, whole_cache=whole_cache)
    phases = _phases(node, prompt_tokens, output_tokens, batch, memory_share)
    cache = model.cache_bytes(prompt_tokens, kv_dtype)
    transfer = read_s(cache, link_bytes_per_s).named("transfer_s", "ms")
    even = split_break_even_hz(phases.prefill_s, transfer, phases.decode_s)
    each = phases.prefill_s + phases.decode_s / phases.running
    together = ceil(requests_per_s * each).named("nodes_together", "nodes")
    load = (requests_per_s / together).named("requests_per_s_per_node", "requests/s")
    mixed = interfered_s(phases.step_s, load * phases.prefill_s).named("tpot_together_s", "ms")
    gain = (phases.decode_s * (mixed / phases.step_s - 1) - transfer).named("saved_s", "s")
    pays, pools = holds(gain > 0), _pools(phases, requests_per_s)
    ttft = (phases.prefill_s + transfer).named("ttft_apart_s", "ms")
    fits = holds(ttft <= ttft_slo_s) and holds(phases.step_s <= tpot_slo_s)
    return Answer(
        ("Split: " if pays else "Keep together: ")
        + "a request moves {cache_bytes} in {transfer_s}; splitting pays above {break_even_per_s} "
        "a node, and here each node would have {load_per_s}",
        {
            "transfer_s": transfer,
            "cache_bytes": cache.named("shipped_bytes", "GB"),
            "cache_bytes_per_token": (cache / prompt_tokens).named("shipped_bytes_per_token"),
            "break_even_per_s": even.named("break_even_per_s", "requests/s"),
            "load_per_s": load,
            "saved_s": gain,
            "prefill_nodes": pools["prefill"],
            "decode_nodes": pools["decode"],
            "nodes_apart": (pools["prefill"] + pools["decode"]).named("nodes_apart", "nodes"),
            "nodes_together": together,
        },
        table=_affordable(phases, transfer, mixed, ttft_slo_s, tpot_slo_s, pools, requests_per_s),
        notes=(
            *_enough(phases, mixed, ttft_slo_s, tpot_slo_s),
            f"The transfer hides behind the prefill where layers are sent as they are done: then "
            f"only the last of {model.layers.value:g} layers is waited for.",
            "An engine with chunked prefill lets part of a prompt ride on memory-bound decode "
            "steps, so the gain is at most this; measured gains were 1.00-1.07x at low load.",
        ),
        ok=fits,
    )


def _phases(
    node: Decode, prompt: Number, output: Number, batch: Number, memory_share: Number
) -> Phases:
    context = (prompt + output / 2).named("mean_context_tokens")
    fit = node.must_fit(memory_share, context)
    running = smallest(batch=batch, memory=fit).named("running", "sequences")
    work = node.model.prefill_flop(prompt)
    prefill = compute_s(work, node.peak_flop_per_s, node.mfu).named("prefill_s", "ms")
    step = node.step_s(running, context).named("decode_step_s", "ms")
    return Phases(running, prefill, step, (decode_steps(output) * step).named("decode_s", "s"))


def _enough(
    phases: Phases, mixed: Quantity, ttft_slo_s: Number, tpot_slo_s: Number
) -> tuple[str, ...]:
    """Whether splitting is needed at all: what is faster than promised need not be faster still."""
    if not (holds(phases.prefill_s <= ttft_slo_s) and holds(mixed <= tpot_slo_s)):
        return ()
    return (
        f"Together the nodes keep both promises too ({show(mixed)} a token): splitting makes "
        "streams faster, and is not needed.",
    )


def _pools(phases: Phases, requests_per_s: Number) -> dict[str, Quantity]:
    prefill = ceil(requests_per_s * phases.prefill_s).named("prefill_nodes", "nodes")
    decode = ceil(requests_per_s * phases.decode_s / phases.running).named("decode_nodes", "nodes")
    return {"prefill": prefill, "decode": decode}


def _affordable(
    phases: Phases,
    transfer: Quantity,
    mixed: Quantity,
    ttft_slo_s: Number,
    tpot_slo_s: Number,
    pools: dict[str, Quantity],
    requests_per_s: Number,
) -> tuple[dict[str, Quantity | str], ...]:
    """Each promise against both arrangements, and how busy the links are."""
    apart = (phases.prefill_s + transfer).named("ttft_apart_s", "ms")
    link = (requests_per_s * transfer / pools["prefill"]).named("link_share", "%")
    ready = phases.prefill_s.named("ttft_together_s", "ms")
    return (
        {"what": "first token, no queue", "together": ready, "apart": apart, "promise": ttft_slo_s},
        {
            "what": "each further token",
            "together": mixed,
            "apart": phases.step_s,
            "promise": tpot_slo_s,
        },
        {
            "what": "one link a prefill node in use",
            "together": "none",
            "apart": link,
            "promise": "below 100 %",
        },
    )
