"""Where decode and prefill stand under the roofline, with the cache counted."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.roofline import (
    attainable_flop_per_s,
    attention_intensity_flop_per_byte,
    intensity_flop_per_byte,
    ridge_context_tokens,
    ridge_flop_per_byte,
    ridge_tokens,
    weights_intensity_flop_per_byte,
)
from ridgeline.quantity import Number, Quantity
from ridgeline.serving.plan.decode import Decode, one_token
from ridgeline.serving.plan.splits import points
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.working.formula import bound


@topic("decode-roofline", subject="serving")
def decode_roofline(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    batch: Number = count(64, "Sequences that decode together.", noun="sequences"),
    context_tokens: Number = amount("8k", "tokens", "Tokens that each has cached.", least="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights and of the arithmetic."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
) -> Answer:
    """Whether reads or arithmetic bind a decode step, and whether any batch could change that."""
    decode = Decode(model, accelerator, _one(), dtype, kv_dtype, whole_cache=True)
    peak, bandwidth = accelerator.flop_per_s(dtype), accelerator.memory_bytes_per_s
    ridge = ridge_flop_per_byte(peak, bandwidth)
    sequence, work = decode.sequence_bytes(context_tokens), decode.sequence_flop(context_tokens)
    moved = (decode.read_bytes(batch) + batch * sequence).named("moved_bytes")
    step = intensity_flop_per_byte((batch * work).named("step_flop"), moved)
    limit = intensity_flop_per_byte(work, sequence).named("limit_flop_per_byte")
    time = decode.step_s(batch, context_tokens)
    at_ridge = decode.ridge_batch()
    return Answer(
        "{batch} with {context_tokens} each do {step_flop_per_byte} of at most "
        "{limit_flop_per_byte} with any batch, and the ridge is {ridge_flop_per_byte}: "
        f"{bound(time)} binds",
        {
            "step_flop_per_byte": step.named("step_flop_per_byte"),
            "limit_flop_per_byte": limit,
            "ridge_flop_per_byte": ridge,
            "ridge_batch": at_ridge,
            "ridge_context_tokens": _ridge_context(decode, ridge, context_tokens),
            "weights_flop_per_byte": _weights_intensity(decode, batch),
            "attention_flop_per_byte": _attention_intensity(decode, context_tokens),
            "ridge_cache_bytes": (at_ridge * sequence).named("ridge_cache_bytes"),
            "attained_flop_per_s": attainable_flop_per_s(step, peak, bandwidth).named(
                "attained_flop_per_s"
            ),
            "step_s": time,
        },
        notes=_notes(_attention_intensity(decode, context_tokens), ridge),
    )


def _notes(attention: Quantity, ridge: Quantity) -> tuple[str, ...]:
    start = (
        "Weights alone gain intensity with the batch, so at the ridge batch their products turn "
        "compute-bound; every sequence reads a cache of its own, so its attention keeps its "
    )
    if min(points(attention - ridge)) >= 0:
        return (start + "intensity, which is above the ridge here: compute binds it too.",)
    return (start + "intensity, which is below the ridge: memory binds it at every batch.",)


def _one() -> Quantity:
    """One device: intensities are the same on any number."""
    return (one_token() / one_token()).named("devices", "GPUs")


def _weights_intensity(decode: Decode, batch: Number) -> Quantity:
    """Of the weights alone; of a mixture, active arithmetic over the experts that are visited."""
    tokens = (batch * one_token()).named("pass_tokens")
    if decode.model.is_moe:
        work = decode.model.flop_per_token() * tokens
        intensity = intensity_flop_per_byte(work, decode.read_bytes(batch))
    else:
        intensity = weights_intensity_flop_per_byte(tokens, dtype_bytes(decode.dtype))
    return intensity.named("weights_flop_per_byte", note="reads of the weights alone")


def _attention_intensity(decode: Decode, context: Number) -> Quantity:
    """Of the attention alone; of grouped heads it is the query heads a cached head serves."""
    model = decode.model
    if model.attention.get("kind") in ("gqa", "mha", "mqa"):
        value = dtype_bytes(decode.kv_dtype)
        intensity = attention_intensity_flop_per_byte(model.heads, model.kv_heads, value)
    else:
        work = model.attention_flop_per_token(context) * one_token()
        intensity = intensity_flop_per_byte(work, decode.sequence_bytes(context))
    return intensity.named("attention_flop_per_byte")


def _ridge_context(decode: Decode, ridge: Quantity, context: Number) -> Quantity:
    """Context up to which some batch reaches the ridge, at this context's cache a token."""
    model = decode.model
    cached = (decode.sequence_bytes(context) / context).named("cached_bytes_per_token")
    attention = model.attention_flop_per_token(context) * one_token() / context
    linear = model.flop_per_token() * one_token()
    return ridge_context_tokens(linear, ridge, cached, attention)


@topic("phase-rooflines", subject="serving")
def phase_rooflines(
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    prompt_tokens: Number = amount("2000", "tokens", "Tokens of the prefill pass.", least="1"),
    batch: Number = count(1, "Sequences that decode together, a token each.", noun="sequences"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights and of the arithmetic."),
) -> Answer:
    """What binds prefill and what binds decode: tokens in a pass against the ridge."""
    peak, bandwidth = accelerator.flop_per_s(dtype), accelerator.memory_bytes_per_s
    value = dtype_bytes(dtype)
    ridge = ridge_flop_per_byte(peak, bandwidth)
    decoded = (batch * one_token()).named("decode_tokens")
    rows: list[dict[str, Quantity | str]] = []
    values: dict[str, Quantity] = {}
    for phase, tokens in (("decode", decoded), ("prefill", prompt_tokens)):
        intensity = weights_intensity_flop_per_byte(tokens, value)
        intensity = intensity.named(f"{phase}_flop_per_byte")
        rate = attainable_flop_per_s(intensity, peak, bandwidth).named(f"{phase}_flop_per_s")
        values |= {f"{phase}_flop_per_byte": intensity, f"{phase}_flop_per_s": rate}
        values[f"{phase}_share"] = (rate / peak).named(f"{phase}_share", "%")
        rows.append(
            {
                "phase": phase,
                "tokens": tokens,
                "intensity": intensity,
                "attainable": rate,
                "binds": bound(rate),
            }
        )
    values |= {
        "ridge_flop_per_byte": ridge,
        "ridge_tokens": ridge_tokens(peak, bandwidth, value),
    }
    return Answer(
        "Prefill of {prompt_tokens} does {prefill_flop_per_byte}, decode of {batch} "
        "{decode_flop_per_byte}, and the ridge is {ridge_flop_per_byte}: "
        f"{rows[1]['binds']} binds prefill, {rows[0]['binds']} decode",
        values,
        table=tuple(rows),
        notes=(
            "One machine, two answers: prefill wants FLOP/s and decode wants bandwidth. Mixing "
            "chunks of a prompt into decode steps fills the arithmetic that decode leaves idle.",
        ),
    )
