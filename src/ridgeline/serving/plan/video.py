"""Videos from a diffusion model: FLOPs, seconds, what batching and queueing do."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.images import full_attention_flop, video_tokens
from ridgeline.physics.prompts import prefill_queue_s
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.quantity import Number, Provenance, Quantity, given, holds
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@topic("video-generation", subject="serving")
def video_generation(
    model: Model = a_model("wan2.1-t2v-14b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that work on one video.", noun="GPUs"),
    width_px: Number = count(832, "Pixels across."),
    height_px: Number = count(480, "Pixels down."),
    frames: Number = count(81, "Frames of the video."),
    passes: Number = count(40, "Denoising passes.", noun="steps"),
    guidance: Number = count(2, "Evaluations a pass: 2 with classifier-free guidance.", most=3),
    mfu: Number = amount("0.5", "", "Share of the peak that a pass reaches.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
    requests_per_s: Number = amount(
        "0.01requests/s", "requests/s", "Videos asked of these devices."
    ),
) -> Answer:
    """How long a video takes to generate, and why batching does not help.

    The transformer's passes are counted; text encoder and decoder of the latents are not.
    """
    tokens = _latent_tokens(model, frames, width_px, height_px)
    linear = (model.flop_per_token() * tokens).named("linear_flop", "PFLOP")
    attention = full_attention_flop(model.layers, model.hidden, tokens)
    one = (linear + attention).named("evaluation_flop", "PFLOP")
    total = (passes * guidance * one).named("video_flop", "PFLOP")
    rate = (gpus * accelerator.flop_per_s(dtype)).named("node_flop_per_s")
    seconds = compute_s(total, rate, mfu).named("seconds", "s")
    wait = prefill_queue_s(requests_per_s, seconds).named("queue_s", "s")
    reading = read_s(model.weights_bytes(dtype), gpus * accelerator.memory_bytes_per_s)
    compute = compute_s(one, rate, mfu).named("evaluation_s", "s")
    busy = (requests_per_s * seconds).named("busy_share", "%")
    progress = (seconds / passes).named("progress_s", "s")
    queue = "a queue without end" if not holds(busy < 1) else "{queue_s} of mean wait"
    return Answer(
        "{tokens} in {passes} take {video_flop} and {seconds} on {gpus}; "
        f"{queue} at {{requests_per_s}}, which is {{busy_share}} of what they can make",
        {
            "seconds": seconds,
            "video_flop": total,
            "tokens": tokens,
            "attention_share": (attention / one).named("attention_share", "%"),
            "queue_s": wait,
            "progress_s": progress,
            "busy_share": busy,
            "compute_over_read": (compute / reading).named("compute_over_read", "x"),
            "one_gpu_s": (seconds * gpus).named("one_gpu_s", "s"),
        },
        table=(
            {"part": "matrix products", "work": linear, "share": (linear / one).named("s1", "%")},
            {
                "part": "attention",
                "work": attention.named("attention_flop", "PFLOP"),
                "share": (attention / one).named("s2", "%"),
            },
        ),
        notes=(
            "One video already fills the devices: arithmetic takes many times the reading of the "
            "weights, so two in a batch take twice as long and both users wait. Serve one at a "
            "time, and add nodes.",
            f"Progress can be told after every pass, each {show(progress)}.",
            "Attention grows with the square of the tokens: twice the tokens (frames or pixels) "
            f"take {show((2 + 2 * attention / one).named('', ''))} times as long.",
        ),
        ok=holds(busy < 1),
    )


def _latent_tokens(model: Model, frames: Number, width_px: Number, height_px: Number) -> Quantity:
    """Tokens after the autoencoder's strides and the patches of the transformer."""
    try:
        stride, patch = model.data["vae_stride"], model.data["patch"]
    except KeyError:
        raise SpecError(
            f"{model.name} makes no videos", where="model", remedy="such as wan2.1-t2v-14b"
        ) from None

    def part(name: str, value: float) -> Quantity:
        return given(
            value,
            name=f"{model.id}.{name}",
            provenance=Provenance.PUBLISHED,
            source=f"{model.name}: {'; '.join(model.data.get('sources', ()))}",
        )

    in_time = part("frame_stride", stride[0] * patch[0])
    in_space = part("pixel_stride", stride[1] * patch[1])
    tokens = video_tokens(frames, width_px, height_px, in_time, in_space)
    return tokens.named("latent_tokens", "tokens")
