"""Long contexts: what one request holds and waits, and what breaks first as it grows."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.prompts import affordable_causal_tokens
from ridgeline.quantity import Number, Quantity, ceil, given, largest
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode, an_engine
from ridgeline.serving.plan.splits import check_tensor_parallel, points
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@dataclass(frozen=True)
class Request:
    """A prompt of so many tokens on a node; what a token adds is taken at this length."""

    decode: Decode
    context: Number
    left: Quantity

    @property
    def attention_flop_per_token_token(self) -> Quantity:
        """Prefill attention over the square of the prompt: constant while all layers see all."""
        work = self.attention_flop() / (self.context * self.context)
        return work.named("attention_flop_per_token_token")

    def attention_flop(self) -> Quantity:
        """Attention of the prompt, as work that all devices share.

        Where attention is split over sequences one prompt's runs on one device, as if the others
        had to do as much.
        """
        alone = self.decode.model.attention_flop(self.context)
        if not self.decode.whole_cache:
            return alone
        return (self.decode.devices * alone).named("attention_flop", note="on one device")

    @property
    def resident_bytes_per_token(self) -> Quantity:
        """Cache of a token on all devices, replicas included."""
        one = self.decode.sequence_bytes(self.context) / self.context
        return one.named("resident_bytes_per_token")

    def ttft_s(self) -> Quantity:
        """Arithmetic of the prompt, its causal attention counted; nothing waits before it."""
        return self.decode.prefill_s(self.context, self.attention_flop()).named("ttft_s")

    def breaks(self, sequences: Number, ttft_s: Number, tpot_s: Number) -> dict[str, Quantity]:
        """The context at which each thing breaks."""
        model, square = self.decode.model, self.attention_flop_per_token_token
        linear, each = model.flop_per_token(), self.resident_bytes_per_token
        budget = self.decode.affordable_flop(ttft_s)
        read = self.decode.readable_bytes(tpot_s, sequences)
        # A cache that is not split lies on one device, and so many share one.
        homes = self.decode.devices if self.decode.whole_cache else given(1, name="homes")
        room = (self.left / homes).named("room_bytes")
        held = ceil(sequences / homes).named("sequences_a_home")
        alone = model.attention_flop(self.context) / (self.context * self.context)
        found = {
            "attention": linear / alone,
            "ttft": affordable_causal_tokens(budget, self.decode.prefill_flop_per_token(), square),
            "sequences": room / (held * each),
            "memory": room / each,
            "tpot": read / (sequences * each),
            "trained": model.context_tokens,
        }
        return {
            name: largest(at=one, never=0 * one).named(f"{name}_break_tokens")
            for name, one in found.items()
        }


# What breaks, in words, and what helps there.
_BREAKS = {
    "attention": (
        "attention does more arithmetic than the weights",
        "reuse cached prefixes; sparse or sliding layers; prefill on more devices",
    ),
    "ttft": (
        "the first token is later than promised",
        "cached prefixes, context parallelism over more devices, or a longer promise; "
        "chunked prefill helps the other streams, not this one",
    ),
    "sequences": (
        "the node holds fewer requests than wanted",
        "fp8 cache, then more devices, then offload what waits",
    ),
    "memory": (
        "one request fills the node",
        "a latent or sliding-window model, or the cache split over nodes",
    ),
    "tpot": (
        "a token takes longer than promised with all requests decoding",
        "fp8 cache, fewer requests a node, sparse attention",
    ),
    "trained": ("longer than the model was trained for", "a model trained for it"),
}


@topic("long-context", subject="serving")
def long_context(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that share the weights.", noun="GPUs"),
    context_tokens: Number = amount("128k", "tokens", "Tokens of one request.", least="1"),
    sequences: Number = count(8, "Requests to hold at once.", noun="sequences"),
    attention: str = choice(
        "tensor", ("tensor", "data"), "What attention is split over: heads, or sequences."
    ),
    ttft_s: Number = amount("10 s", "s", "Objective: time to first token."),
    tpot_s: Number = amount("50 ms", "s", "Objective: time per output token."),
    mfu: Number = amount(
        "0.5",
        "",
        "Share of the peak that prefill attains under the roofline.",
        most="1",
        interval=("0.35", "0.65"),
    ),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    engine: str = an_engine(),
) -> Answer:
    """What a long request holds and waits for, how many fit, and what breaks first as it grows."""
    check_tensor_parallel(model, gpus)
    whole = attention == "data"
    decode = Decode(
        model, accelerator, gpus, dtype, kv_dtype, mfu=mfu, whole_cache=whole, engine=engine
    )
    left = decode.left_bytes(memory_share)
    request = Request(decode, context_tokens, left)
    cache = model.cache_bytes(context_tokens, kv_dtype).named("cache_bytes")
    resident = decode.sequence_bytes(context_tokens).named("resident_bytes")
    fit = decode.sequences_that_fit(left, context_tokens).named("sequences_that_fit", "sequences")
    first = request.ttft_s()
    prefill = model.prefill_flop(context_tokens)
    breaks = request.breaks(sequences, ttft_s, tpot_s)
    holds = max(points(fit)) > 0
    return Answer(
        "{context_tokens} hold {cache_bytes} and the first token takes {time_to_first_token_s} on "
        "{gpus}; {sequences_that_fit} fit. " + _first(breaks),
        {
            "cache_bytes": cache,
            "time_to_first_token_s": first.named("time_to_first_token_s"),
            "sequences_that_fit": fit,
            "resident_bytes": resident,
            "attention_share": (model.attention_flop(context_tokens) / prefill).named(
                "attention_share", "%"
            ),
            "step_s": decode.step_s(sequences, context_tokens),
            **{one.name: one for one in breaks.values()},
        },
        table=_ordered(breaks),
        notes=_notes(decode),
        ok=holds,
    )


def _ordered(breaks: dict[str, Quantity]) -> tuple[dict[str, Quantity | str], ...]:
    """What breaks, the shortest context first."""
    ordered = sorted(breaks, key=lambda name: min(points(breaks[name])))
    return tuple(
        {"from": breaks[name], "what breaks": _BREAKS[name][0], "what helps": _BREAKS[name][1]}
        for name in ordered
    )


def _first(breaks: dict[str, Quantity]) -> str:
    name = min(breaks, key=lambda one: min(points(breaks[one])))
    return f"First to break, from {{{name}_break_tokens}}: {_BREAKS[name][0]}"


def _notes(decode: Decode) -> tuple[str, ...]:
    notes = [
        "Time to first token is the arithmetic of the prompt alone, with its attention: queueing, "
        "the client and the host come on top.",
        decode.told(),
    ]
    model = decode.model
    if "kv_lora_rank" in model.attention and not decode.whole_cache:
        notes.append(
            "Every rank keeps the whole latent cache; attention=data keeps each request once, on "
            "one device."
        )
    if model.capped_layers.value or model.linear_layers.value or "indexer" in model.attention:
        notes.append(
            "Not every layer sees every token: the contexts at which things break are those at "
            "what a token costs at the context asked for."
        )
    return tuple(notes)
