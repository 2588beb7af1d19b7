"""Pictures in prompts: tokens, what they do to prefill and batch, which stage gives in first."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.images import full_attention_flop, image_tokens
from ridgeline.physics.prompts import decode_steps
from ridgeline.physics.roofline import compute_s
from ridgeline.physics.size import forward_flop_per_token
from ridgeline.quantity import Number, Quantity, floor, holds, smallest
from ridgeline.serving.plan.decode import Decode
from ridgeline.topics import (
    DTYPES,
    Answer,
    a_model,
    amount,
    an_accelerator,
    choice,
    count,
    numbers,
    topic,
)
from ridgeline.working.formula import bound


@topic("image-prompts", subject="serving")
def image_prompts(
    model: Model = a_model("qwen3-vl-8b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(1, "Devices that run encoder and model.", noun="GPUs"),
    sides_px: tuple[Quantity, ...] = numbers("336,1024,2048", "", "Sides of square pictures."),
    patch_px: Number = count(16, "Pixels of one patch of the encoder, along a side."),
    merge: Number = count(2, "Patches along a side that become one token."),
    images: Number = count(1, "Pictures in a request.", noun="images"),
    text_tokens: Number = amount("200", "tokens", "Text of a request.", least="1"),
    output_tokens: Number = amount("200", "tokens", "Output of a request.", least="1"),
    encoder_params: Number = amount("0.6B", "params", "Weights of the encoder."),
    encoder_layers: Number = count(27, "Layers of the encoder."),
    encoder_hidden: Number = count(1152, "Width of the encoder."),
    mfu: Number = amount("0.4", "", "Share of the peak that encoder and prefill reach.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of weights and arithmetic."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
) -> Answer:
    """How many tokens a picture is, and what it does to prefill, batch and rate.

    Sides are rounded up to whole tokens. The encoder sees every patch; merging comes after it.
    """
    node = Decode(model, accelerator, gpus, dtype, kv_dtype, mfu=mfu)
    usable = (gpus * accelerator.memory_bytes * memory_share).named("usable_bytes")
    left = (usable - node.weights_bytes).named("left_bytes", note="for the cache")
    encoder = (encoder_params, encoder_layers, encoder_hidden)
    rows = tuple(
        _picture(node, left, side, patch_px, merge, images, text_tokens, output_tokens, encoder)
        for side in sides_px
    )
    plain = _fit(node, left, text_tokens + output_tokens)
    first = rows[0]
    return Answer(
        "a picture of {side} px is {tokens_per_image}; {first_bottleneck} gives in first, at "
        "{requests_per_s}".replace("{side}", f"{sides_px[0].value:g}").replace(
            "{first_bottleneck}", bound(first["requests_per_s"])
        ),
        {
            "tokens_per_image": first["tokens"],
            "prefill_s": first["prefill"],
            "encoder_s": first["encoder"],
            "batch": first["batch"],
            "batch_text_only": plain,
            "requests_per_s": first["requests_per_s"],
        },
        table=tuple(
            {"side": row["side"]} | row | {"gives in first": bound(row["requests_per_s"])}
            for row in rows
        ),
        notes=(
            "A side that is no multiple of the token's size is padded, never cut.",
            "Pictures repeat: a cache of encoded pictures saves the encoder, a cache of prefixes "
            "the prefill as well.",
        ),
    )


def _fit(node: Decode, left: Quantity, tokens: Number) -> Quantity:
    """Requests of so many tokens that are held at once."""
    fits = floor(left / node.sequence_bytes(tokens))
    if not holds(fits >= 1):
        raise SpecError(
            f"{node.model.name} leaves no memory for one request",
            where="gpus",
            remedy="more devices, narrower weights or smaller pictures",
        )
    return fits.named("requests_that_fit", "requests")


def _picture(
    node: Decode,
    left: Quantity,
    side: Quantity,
    patch_px: Number,
    merge: Number,
    images: Number,
    text_tokens: Number,
    output_tokens: Number,
    encoder: tuple[Number, Number, Number],
) -> dict[str, Quantity]:
    """One size of picture: tokens, times of its stages, and the rate each stage sustains."""
    params, layers, hidden = encoder
    tokens = image_tokens(side, side, patch_px * merge).named("image_tokens", "tokens")
    patches = (tokens * merge * merge).named("patches", "tokens")
    seen = forward_flop_per_token(params) * patches + full_attention_flop(layers, hidden, patches)
    encode = compute_s(images * seen, node.peak_flop_per_s, node.mfu).named("encoder_s", "ms")
    prompt = (images * tokens + text_tokens).named("prompt_tokens", "tokens")
    prefill = compute_s(node.model.prefill_flop(prompt), node.peak_flop_per_s, node.mfu)
    batch = _fit(node, left, prompt + output_tokens)
    step = node.step_s(batch, prompt + output_tokens)
    rate = smallest(
        encoder=1 / encode,
        prefill=1 / prefill,
        cache_memory=batch / (decode_steps(output_tokens) * step),
    )
    return {
        "side": side,
        "tokens": tokens,
        "encoder": encode,
        "prefill": prefill.named("prefill_s", "ms"),
        "batch": batch,
        "requests_per_s": rate.named("requests_per_s", "requests/s"),
    }
