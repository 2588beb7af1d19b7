"""Memory of a device, line by line: sizing a card, and what each engine leaves for the cache."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.memory import (
    cache_blocks,
    sequences_that_fit,
    share_of_all_bytes,
    share_of_free_after_bytes,
    share_of_free_before_bytes,
    split_bytes,
)
from ridgeline.quantity import (
    Number,
    Provenance,
    Quantity,
    ceil,
    floor,
    given,
    largest,
)
from ridgeline.serving.plan.decode import WEIGHT_DTYPES
from ridgeline.serving.plan.splits import check_decodes, check_tensor_parallel, points, splits
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic

_SPLITS = 16


@topic("gpu-memory", subject="serving")
def gpu_memory(
    model: Model = a_model("llama-3.1-8b"),
    accelerator: Accelerator = an_accelerator("l4"),
    context_tokens: Number = amount("8k", "tokens", "Tokens of one sequence.", least="1"),
    sequences: Number = count(32, "Sequences to hold at once.", noun="sequences"),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
) -> Answer:
    """How many sequences fit beside the weights on one card, and how many cards a load needs."""
    check_decodes(model)
    weights, one = model.weights_bytes(dtype), model.cache_bytes(context_tokens, kv_dtype)
    one = one.named("sequence_bytes")
    usable = (accelerator.memory_bytes * memory_share).named("usable_bytes")
    left = (usable - weights).named("left_bytes", note="for the cache, on one card")
    fit = sequences_that_fit(left, one).named("sequences_on_one", "sequences")
    wanted = (weights + sequences * one).named("wanted_bytes")
    cards = ceil(wanted / usable).named("cards", "GPUs")
    alone = max(points(fit)) > 0
    rows = _by_split(model, accelerator, (context_tokens, memory_share), (dtype, kv_dtype))
    return Answer(
        "{weights_bytes} of weights and {sequence_bytes} a sequence of {context_tokens}: "
        "{sequences_on_one} on one card; {sequences} need the memory of {cards}"
        + _fewest(rows, sequences),
        {
            "sequences_on_one": fit,
            "cards": cards,
            "weights_bytes": weights.named("weights_bytes"),
            "kv_bytes_per_token": model.kv_bytes_per_token(kv_dtype),
            "sequence_bytes": one,
            "left_bytes": left,
            "weights_in_cards": (weights / accelerator.memory_bytes).named(
                "weights_in_cards", "GPUs"
            ),
        },
        table=rows,
        notes=_sizing_notes(fit if alone else sequences, context_tokens, alone),
    )


def _by_split(
    model: Model,
    accelerator: Accelerator,
    numbers: tuple[Number, Number],
    kinds: tuple[str, str],
) -> tuple[dict[str, Quantity | str], ...]:
    """Sequences on each number of cards that the model can be split over."""
    (context, share), (dtype, kv_dtype) = numbers, kinds
    rows: list[dict[str, Quantity | str]] = []
    for parts in splits(model, _SPLITS):
        cards = given(
            parts,
            "GPUs",
            name="split",
            provenance=Provenance.DEFINED,
            source="a row of the table",
        )
        left = accelerator.memory_bytes * share - model.weights_bytes(dtype) / cards
        one = model.cache_bytes_per_rank(context, kv_dtype, cards)
        rows.append(
            {
                "cards": cards,
                "left on each": left,
                "a sequence takes on each": one,
                "sequences": sequences_that_fit(left, one).named("", "sequences"),
            }
        )
    return tuple(rows)


def _fewest(rows: tuple[dict[str, Quantity | str], ...], wanted: Number) -> str:
    """The smallest split that holds what is wanted; caches beyond the KV heads are replicated."""
    enough, most = max(points(wanted)), ""
    for row in rows:
        cards, held = row["cards"], row["sequences"]
        assert isinstance(cards, Quantity)
        assert isinstance(held, Quantity)
        most = show(cards)
        if min(points(held)) >= enough:
            return f", which as a split are {most}"
    return f", and no split up to {most} holds them"


def _sizing_notes(load: Number, context: Number, alone: bool) -> tuple[str, ...]:
    notes = [
        "Activations, graphs and the engine's own buffers take 2 to 8 GiB a card of what is left: "
        "engine-memory has the lines. So prove it: ridgeline bench load URL --concurrency "
        f"{show(load).split(' ')[0].replace(',', '')} --prompt-tokens "
        f"{max(points(context)) * _PROMPT_SHARE:.0f} --output-tokens "
        f"{max(points(context)) * (1 - _PROMPT_SHARE):.0f} --ignore-eos, and watch for preemptions."
    ]
    if not alone:
        notes.append("No sequence fits one card, so copies of the model do not help: split it.")
    return tuple(notes)


# A load test that fills the context: most of it prompt, as chats and retrieval have it.
_PROMPT_SHARE = 0.875


# Engines.


@dataclass(frozen=True)
class Lines:
    """What one device holds beside the cache, in bytes."""

    memory: Quantity
    weights: Quantity
    activations: Number
    graphs: Number
    other: Number

    @property
    def all(self) -> Quantity:
        """All of them together."""
        held = self.weights + self.activations + self.graphs + self.other
        return held.named("held_bytes")


def _vllm(lines: Lines, share: Number) -> Quantity:
    """Since 0.21 the graphs are estimated and counted inside."""
    return share_of_all_bytes(lines.memory, share, lines.all)


def _vllm_before(lines: Lines, share: Number) -> Quantity:
    """Before 0.21 graphs were captured after the cache had been sized."""
    inside = (lines.all - lines.graphs).named("inside_bytes")
    return share_of_all_bytes(lines.memory, share, inside)


def _sglang(lines: Lines, share: Number) -> Quantity:
    return share_of_free_before_bytes(lines.memory, share, lines.other, lines.weights)


def _trt_llm(lines: Lines, share: Number) -> Quantity:
    taken = (lines.all - lines.graphs).named("taken_bytes")
    return share_of_free_after_bytes(lines.memory, share, taken)


# Each engine's rule, and in words what its memory fraction is a share of.
_ENGINES = {
    "vllm": (_vllm, "all memory; weights, activations, collectives and graphs inside"),
    "vllm-0.20": (_vllm_before, "all memory; graphs outside (before 0.21)"),
    "sglang": (_sglang, "what is free before loading; activations and graphs outside"),
    "trt-llm": (_trt_llm, "what weights and activations leave free; graphs outside"),
}
_MEASURED = "vLLM on H100, as llm-d-planner measured it"


@topic("engine-memory", subject="serving")
def engine_memory(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    engine: str = choice("vllm", tuple(_ENGINES), "Engine, for what its memory fraction means."),
    tensor_parallel: Number = count(8, "Devices that heads are split over.", noun="GPUs"),
    pipeline_parallel: Number = count(1, "Stages that layers are split over.", noun="stages"),
    memory_share: Number = amount("0.9", "", "The engine's memory fraction.", most="1"),
    activation_bytes: Number = amount(
        "4.84 GiB",
        "B",
        "Peak of activations on each device.",
        interval=("2.12 GiB", "7.38 GiB"),
        source=f"{_MEASURED}: Llama 3.3 70B at TP2; others are in the interval",
    ),
    graph_bytes: Number = amount(
        "0.65 GiB",
        "B",
        "CUDA graphs on each device; 0 for an eager engine.",
        interval=("0 GiB", "1.3 GiB"),
        source="vllm-project/vllm#21489",
    ),
    other_bytes: Number = amount(
        "0.55 GiB",
        "B",
        "Driver context and collective buffers (NCCL) on each device.",
        interval=("0.13 GiB", "1.5 GiB"),
        source=f"{_MEASURED}: 0.13 GiB on one device, 0.55 at TP2",
    ),
    context_tokens: Number = amount("8k", "tokens", "Tokens of one sequence.", least="1"),
    block_tokens: Number = amount("16 tokens", "tokens", "Tokens of one cache block.", least="1"),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
) -> Answer:
    """What an engine's memory fraction leaves for the cache on each device, line by line."""
    check_decodes(model)
    check_tensor_parallel(model, tensor_parallel)
    weights = split_bytes(model.weights_bytes(dtype), tensor_parallel, pipeline_parallel)
    weights = weights.named("weights_on_device_bytes")
    lines = Lines(accelerator.memory_bytes, weights, activation_bytes, graph_bytes, other_bytes)
    budget = _ENGINES[engine][0](lines, memory_share).named("budget_bytes")
    pool = largest(budget=budget, none=0 * budget).named("cache_on_device_bytes")
    one = _sequence_on_rank(model, (tensor_parallel, pipeline_parallel), context_tokens, kv_dtype)
    per_token = (one / context_tokens).named("cache_on_device_bytes_per_token")
    blocks = cache_blocks(pool, (block_tokens * per_token).named("block_bytes"))
    spare = (lines.memory - lines.all - pool).named("spare_bytes", note="below 0 it runs out")
    lacks = _lacks(spare, blocks)
    return Answer(
        "{cache_on_device_bytes} of cache on each device, {cache_tokens} in all "
        f"({engine}'s fraction is of {_ENGINES[engine][1].split(';')[0]}); "
        "{sequences} of {context_tokens}; "
        + (f"it does not start: {lacks}" if lacks else "{spare_bytes} spare"),
        {
            "cache_tokens": (blocks * block_tokens).named("cache_tokens"),
            "cache_on_device_bytes": pool,
            "blocks": blocks.named("blocks", "blocks"),
            "sequences": floor(blocks * block_tokens / context_tokens).named(
                "sequences", "sequences"
            ),
            "weights_on_device_bytes": weights,
            "cache_on_device_bytes_per_token": per_token,
            "spare_bytes": spare,
        },
        table=_by_engine(lines, memory_share, per_token),
        notes=_engine_notes(engine, model, tensor_parallel, pool),
        ok=not lacks,
    )


def _lacks(spare: Quantity, blocks: Quantity) -> str:
    """Why the engine does not start; empty where it does."""
    if min(points(spare)) < 0:
        return f"{show(-1 * spare)} too little memory on each device"
    if max(points(blocks)) <= 0:
        return "its fraction leaves no cache"
    return ""


def _sequence_on_rank(
    model: Model, split: tuple[Number, Number], context: Number, kv_dtype: str
) -> Quantity:
    """The cache of one sequence on a device of the fullest stage."""
    tensor_parallel, pipeline_parallel = split
    one = model.cache_bytes_per_rank(context, kv_dtype, tensor_parallel)
    stage = ceil(model.layers / pipeline_parallel).named("layers_of_fullest_stage", "layers")
    return (one * stage / model.layers).named("sequence_on_device_bytes")


def _by_engine(
    lines: Lines, share: Number, per_token: Quantity
) -> tuple[dict[str, Quantity | str], ...]:
    """The same lines under each engine's rule."""
    rows: list[dict[str, Quantity | str]] = []
    for name, (rule, told) in _ENGINES.items():
        budget = rule(lines, share)
        pool = largest(budget=budget, none=0 * budget)
        rows.append(
            {
                "engine": name,
                "fraction of": told,
                "cache": pool,
                "tokens": floor(pool / per_token),
                "spare": lines.memory - lines.all - pool,
            }
        )
    return tuple(rows)


def _engine_notes(
    engine: str, model: Model, tensor_parallel: Number, pool: Quantity
) -> tuple[str, ...]:
    notes = [
        "Every rank keeps its part of every sequence, so the pools of the ranks are not added up: "
        "tokens are the smallest pool over what a token takes on one device."
    ]
    if engine == "vllm-0.20":
        notes.append("Graphs come on top of the fraction: a fraction near 1 runs out of memory.")
    if max(points(tensor_parallel)) > model.kv_heads.value:
        notes.append(f"Past {model.kv_heads.value:.0f} KV heads each rank keeps a whole head.")
    if max(points(pool)) <= 0:
        notes.append("Nothing is left for the cache: more devices, or smaller types.")
    return tuple(notes)
