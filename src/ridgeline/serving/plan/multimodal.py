"""Pictures in prompts: tokens, what they do to prefill and batch, which stage gives in first."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.images import full_attention_flop, image_tokens
from ridgeline.physics.prompts import decode_steps
from ridgeline.physics.roofline import compute_s
from ridgeline.physics.size import forward_flop_per_token
from ridgeline.quantity import Number, Quantity, given, largest
from ridgeline.serving.plan.decode import Decode
from ridgeline.serving.plan.splits import check_tensor_parallel
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


@dataclass(frozen=True, slots=True)
class Encoder:
    """What turns patches into tokens."""

    params: Number
    layers: Number
    hidden: Number

    def flop(self, patches: Quantity) -> Quantity:
        """Of one picture: every patch sees every other."""
        linear = forward_flop_per_token(self.params) * patches
        return linear + full_attention_flop(self.layers, self.hidden, patches)


@dataclass(frozen=True, slots=True)
class Request:
    """What comes with the pictures, and what goes out."""

    images: Number
    text_tokens: Number
    output_tokens: Number


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
    Encoder, prefill and decoding take turns on the same devices, so their times add up.
    """
    check_tensor_parallel(model, gpus)
    node = Decode(model, accelerator, gpus, dtype, kv_dtype, mfu=mfu)
    encoder = Encoder(encoder_params, encoder_layers, encoder_hidden)
    request = Request(images, text_tokens, output_tokens)
    rows = tuple(
        _picture(node, side, (patch_px, merge), request, encoder, memory_share) for side in sides_px
    )
    plain = node.must_fit(memory_share, text_tokens + output_tokens)
    first = rows[0]
    return Answer(
        f"A picture of {sides_px[0].value:g} px is {{tokens_per_image}}: {{batch}} fit where "
        "{batch_text_only} of text alone do, and the devices serve {requests_per_s}; of each, "
        f"{bound(first['longest'])} takes longest",
        {
            "tokens_per_image": first["tokens"],
            "prefill_s": first["prefill"],
            "encoder_s": first["encoder"],
            "decode_s": first["decode"],
            "batch": first["batch"],
            "batch_text_only": plain.named("batch_text_only", "requests"),
            "requests_per_s": first["rate"],
        },
        table=tuple(
            {name: cell for name, cell in row.items() if name != "longest"}
            | {"longest": bound(row["longest"])}
            for row in rows
        ),
        notes=(
            "A side that is no multiple of the token's size is padded, never cut.",
            "Pictures repeat: a cache of encoded pictures saves the encoder, a cache of prefixes "
            "the prefill as well.",
        ),
    )


def _picture(
    node: Decode,
    side: Quantity,
    grid: tuple[Number, Number],
    request: Request,
    encoder: Encoder,
    memory_share: Number,
) -> dict[str, Quantity]:
    """One size of picture: tokens, device time of its stages, and the rate of all together."""
    patch_px, merge = grid
    tokens = image_tokens(side, side, patch_px * merge).named("image_tokens", "tokens")
    patches = (tokens * merge * merge).named("patches", "tokens")
    seen = request.images * encoder.flop(patches)
    encode = compute_s(seen, node.peak_flop_per_s, node.mfu).named("encoder_s", "ms")
    prompt = (request.images * tokens + request.text_tokens).named("prompt_tokens", "tokens")
    prefill = node.prefill_s(prompt).named("prefill_s", "ms")
    context = prompt + request.output_tokens
    batch = node.must_fit(memory_share, context).named("batch", "requests")
    step = node.step_s(batch, context)
    decode = (decode_steps(request.output_tokens) * step / batch).named("decode_s", "ms")
    one = given(1, "requests", name="one_request")
    rate = (one / (encode + prefill + decode)).named("requests_per_s", "requests/s")
    return {
        "side": side,
        "tokens": tokens,
        "encoder": encode,
        "prefill": prefill,
        "decode": decode,
        "batch": batch,
        "rate": rate,
        "longest": largest(encoder=encode, prefill=prefill, decode=decode),
    }
