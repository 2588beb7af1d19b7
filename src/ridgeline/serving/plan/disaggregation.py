"""Prefill and decode on separate nodes: what the transfer costs, and from which load it pays."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.prompts import (
    decode_steps,
    interfered_s,
    promised_load_hz,
    split_break_even_hz,
)
from ridgeline.physics.roofline import read_s
from ridgeline.quantity import Number, Quantity, ceil, choose, holds, smallest
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode, an_engine
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
    mfu: Number = amount(
        "0.5", "", "Share of the peak that prefill reaches under the roofline.", most="1"
    ),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    ttft_slo_s: Number = amount("2s", "s", "Time to first token that is promised."),
    tpot_slo_s: Number = amount("50ms", "s", "Time per output token that is promised."),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    whole_cache: bool = flag(False, "Whether a sequence's cache lies whole on one device."),
    engine: str = an_engine(),
) -> Answer:
    """Whether prefill and decode belong on separate nodes, and how many of each it takes.

    Together, prompts stretch every stream's steps; apart, each cache travels once. The fewest nodes
    that keep both promises decide: a node that does both may take `break_even` requests, and where
    it could do more than that, splitting pays.
    """
    check_tensor_parallel(model, gpus)
    node = Decode(
        model, accelerator, gpus, dtype, kv_dtype, mfu=mfu, whole_cache=whole_cache, engine=engine
    )
    phases = _phases(node, prompt_tokens, output_tokens, batch, memory_share)
    cache = model.cache_bytes(prompt_tokens, kv_dtype)
    transfer = read_s(cache, link_bytes_per_s).named("transfer_s", "ms")
    both = _Both(phases, requests_per_s, tpot_slo_s)
    faster = split_break_even_hz(phases.prefill_s, transfer, phases.decode_s)
    saved = phases.decode_s * (both.tpot_s / phases.step_s - 1) - transfer
    pools = _pools(phases, requests_per_s)
    apart = (pools["prefill"] + pools["decode"]).named("nodes_apart", "nodes")
    ttft = (phases.prefill_s + transfer).named("ttft_apart_s", "ms")
    can_apart = holds(ttft <= ttft_slo_s) and holds(phases.step_s <= tpot_slo_s)
    can_both = holds(phases.prefill_s <= ttft_slo_s) and holds(phases.step_s < tpot_slo_s)
    verdict = _verdict(can_apart, can_both, is_fewer=holds(apart < both.nodes))
    return Answer(
        _SAYS[verdict],
        {
            "break_even_per_s": both.promised,
            "full_per_s": both.full,
            "nodes_together": both.nodes,
            "nodes_apart": apart,
            "prefill_nodes": pools["prefill"],
            "decode_nodes": pools["decode"],
            "load_per_s": both.load,
            "transfer_s": transfer,
            "cache_bytes": cache.named("shipped_bytes", "GB"),
            "cache_bytes_per_token": (cache / prompt_tokens).named("shipped_bytes_per_token"),
            "saved_s": saved.named("saved_s", "s", note="a request, apart"),
            "faster_above_per_s": faster.named("faster_above_per_s", "requests/s"),
        },
        table=_affordable(
            phases, transfer, both.tpot_s, ttft_slo_s, tpot_slo_s, pools, requests_per_s
        ),
        notes=(
            *_also(verdict, saved, apart, both.nodes),
            f"The transfer hides behind the prefill where layers are sent as they are done: then "
            f"only the last of {model.layers.value:g} layers is waited for.",
            "An engine with chunked prefill lets part of a prompt ride on memory-bound decode "
            "steps, so the gain is at most this; measured gains were 1.00-1.07x at low load.",
            node.told(),
        ),
        ok=can_apart or can_both,
    )


#: What is said of each verdict; the break-even is the load up to which a node may do both.
_SAYS = {
    "split": "Split: apart {nodes_apart} keep both promises, and together {nodes_together}: a node "
    "that does both keeps {tpot_slo_s} a token up to {break_even_per_s} of the {full_per_s} that "
    "fill it",
    "together": "Keep together: {nodes_together} keep both promises, apart {nodes_apart} would; a "
    "node that does both keeps {tpot_slo_s} a token up to {break_even_per_s}, and {full_per_s} "
    "fill it",
    "late": "Keep together: apart the first token comes later than {ttft_slo_s}, since a cache of "
    "{cache_bytes} travels {transfer_s}; {nodes_together} keep both promises",
    "neither": "Neither keeps both promises: prefill, or a decode step, takes longer than promised "
    "on one node; {nodes_together} together or {nodes_apart} apart carry the load",
}


def _verdict(can_apart: bool, can_both: bool, *, is_fewer: bool) -> str:
    """The fewest nodes that keep both promises; on as many, one kind of node is simpler."""
    if not can_apart:
        return "late" if can_both else "neither"
    return "split" if is_fewer or not can_both else "together"


class _Both:
    """Nodes that do both phases: what one carries, how many it takes, and a token's time there."""

    def __init__(self, phases: Phases, requests_per_s: Number, tpot_slo_s: Number) -> None:
        promised = promised_load_hz(phases.step_s, tpot_slo_s, phases.prefill_s)
        self.promised = promised.named("break_even_per_s", "requests/s", note="on one node")
        each = phases.prefill_s + phases.decode_s / phases.running
        self.full = (1 / each).named("full_per_s", "requests/s", note="on one node")
        least = smallest(promise=self.promised, full=self.full)
        carried = choose(self.promised > 0, least, self.full, why="a node can keep the promise")
        self.nodes = ceil(requests_per_s / carried).named("nodes_together", "nodes")
        self.load = (requests_per_s / self.nodes).named("requests_per_s_per_node", "requests/s")
        mixed = interfered_s(phases.step_s, self.load * phases.prefill_s)
        self.tpot_s = mixed.named("tpot_together_s", "ms")


def _also(verdict: str, saved: Quantity, apart: Quantity, together: Quantity) -> tuple[str, ...]:
    """What the verdict leaves: streams that would be faster still, though nobody was promised."""
    if verdict != "together" or not holds(saved > 0):
        return ()
    more = "for more nodes" if holds(apart > together) else "on as many nodes"
    return (
        f"Apart, a request would be done {show(saved)} sooner {more}: faster than promised, which "
        "is why it does not decide. A shorter --tpot-slo asks for it.",
    )


def _phases(
    node: Decode, prompt: Number, output: Number, batch: Number, memory_share: Number
) -> Phases:
    context = (prompt + output / 2).named("mean_context_tokens")
    fit = node.must_fit(memory_share, context)
    running = smallest(batch=batch, memory=fit).named("running", "sequences")
    prefill = node.prefill_s(prompt).named("prefill_s", "ms")
    step = node.step_s(running, context).named("decode_step_s", "ms")
    return Phases(running, prefill, step, (decode_steps(output) * step).named("decode_s", "s"))


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
