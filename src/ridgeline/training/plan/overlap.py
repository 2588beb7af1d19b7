"""Communication behind arithmetic: when sharded weights arrive in time."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.parallel import all_gather_bytes, exposed_s
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.physics.training import hiding_tokens
from ridgeline.quantity import Number
from ridgeline.topics import Answer, a_model, amount, an_accelerator, count, topic


@topic("fsdp-overlap", subject="training")
def fsdp_overlap(
    model: Model = a_model("llama-3.1-405b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    tokens: Number = amount("8k", "tokens", "Tokens of a GPU's micro-batch.", least="1"),
    ranks: Number = count(1024, "GPUs that share out the weights.", noun="ranks", least=2),
    link: Number = amount("400 Gb/s", "Gb/s", "Network of each GPU.", least="1 Gb/s"),
    mfu: Number = amount(
        "0.4", "", "Share of the peak that arithmetic reaches.", least="0.001", most="1"
    ),
    sm_share: Number = amount(
        "0",
        "",
        "Share of the chip that communication kernels take from arithmetic.",
        most="0.9",
        interval=("0", "0.15"),
    ),
    weight_bytes: Number = amount("2 B", "B", "Bytes of a gathered weight.", least="0.5 B"),
    gradient_bytes: Number = amount("4 B", "B", "Bytes of a reduced gradient.", least="0.5 B"),
) -> Answer:
    """Tokens a GPU needs so that FSDP's gathering of weights hides behind arithmetic.

    The number of parameters cancels: bytes of a weight over the network, against the FLOPs of a
    weight for each token.
    """
    if model.is_moe:
        raise SpecError(
            f"{model.name} gathers all experts and multiplies few: the rule is for dense models",
            where="model",
            remedy="a dense model; `training-layout` counts mixtures",
        )
    peak, left = accelerator.flop_per_s("bf16"), (mfu * (1 - sm_share)).named("mfu_beside")
    forward = hiding_tokens(weight_bytes, 2.0, peak, left, link)
    backward = hiding_tokens(weight_bytes + gradient_bytes, 4.0, peak, left, link)
    layer = (model.params / model.layers).named("layer_params", "params")
    gather = read_s(all_gather_bytes(layer * weight_bytes, ranks), link).named("gather_s")
    flop = (model.flop_per_token() / model.layers * tokens).named("layer_flop")
    spent = compute_s(flop, peak, left).named("layer_s")
    reduce = read_s(all_gather_bytes(layer * gradient_bytes, ranks), link).named("reduce_s")
    seen = exposed_s(gather, spent) + exposed_s(gather + reduce, spent * 2)
    step = (seen * model.layers).named("exposed_s", note="a micro-batch, both ways")
    slower = spent * 3 * model.layers - compute_s(flop, peak, mfu) * 3 * model.layers
    busy = (spent * 3 * model.layers).named("busy_s")
    return Answer(
        "the forward gather hides from {least_tokens} a GPU on; at {tokens} {exposed_s} of a "
        "micro-batch are seen",
        {
            "least_tokens": forward.named("least_tokens", "tokens"),
            "least_tokens_backward": backward.named("least_tokens_backward", "tokens"),
            "least_tokens_by_node": (forward / accelerator.per_node).named(
                "least_tokens_by_node", "tokens", note="devices of a node bring a part each"
            ),
            "exposed_s": step,
            "exposed_share": (step / (busy + step)).named("exposed_share", "%"),
            "gather_s": gather,
            "layer_s": spent,
            "slowed_s": slower.named("slowed_s", note="arithmetic lost to the kernels"),
        },
        notes=(
            "backward gathers again and reduces gradients: with 32-bit gradients it needs "
            "more tokens than the forward pass, which the usual figure leaves out",
            "the usual figure takes all bytes over one NIC; where all devices of a node gather the "
            "same weights, each NIC brings a part, and far fewer tokens do",
        ),
    )
