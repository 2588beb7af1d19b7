"""One training run over two sites: what the link between them lets through."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.parallel import all_reduce_bytes, exposed_s, message_bytes
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.physics.size import training_flop, weight_bytes
from ridgeline.quantity import Number, Quantity, ceil, holds, largest
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, flag, topic

_TYPES = ("fp32", "bf16", "fp8", "int4")
#: Local steps of the table's split: the most that DiLoCo reports without loss.
_LOCAL_STEPS = 500
#: All-reduces of a layer under tensor parallelism, two each way.
_REDUCES = 4


@topic("two-clouds", subject="training")
def two_clouds(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    link: Number = amount("200 Gb/s", "Gb/s", "Link between the sites.", least="1 Gb/s"),
    nodes: Number = count(512, "Nodes of one site.", noun="nodes"),
    node_link: Number = amount("400 Gb/s", "Gb/s", "Fabric of each node.", least="1 Gb/s"),
    step_tokens: Number = amount("4096k", "tokens", "Tokens of one step, both sites.", least="1"),
    mfu: Number = amount(
        "0.4", "", "Share of the peak that a site reaches.", least="0.001", most="1"
    ),
    steps_between: Number = count(
        1, "Steps between two exchanges (DiLoCo: 100 to 500).", noun="steps"
    ),
    gradient_dtype: str = choice("bf16", _TYPES, "Type of what is exchanged."),
    overlap: bool = flag(False, "The exchange runs behind the next steps, one exchange late."),
    tolerable: Number = amount("1.1", "", "Slowdown that is still worth it.", least="1.001"),
) -> Answer:
    """How much a slow link between two sites stretches a step, and which splits survive it.

    Two sites reduce gradients over one ring: each sends the gradients once.
    """
    gradients = weight_bytes(model.params, dtype_bytes(gradient_dtype)).named("gradients")
    moved = all_reduce_bytes(gradients, 2.0).named("exchanged_bytes")
    exchange = read_s(moved, link).named("exchange_s")
    gpus = (2 * nodes * accelerator.per_node).named("gpus", "GPUs")
    work = training_flop(model.active_params, step_tokens)
    spent = compute_s(work, gpus * accelerator.flop_per_s("bf16"), mfu).named("compute_s")
    fabric = (nodes * node_link).named("fabric_bytes_per_s")

    def slowed(exchange_s: Quantity, steps: Quantity, *, hidden: bool) -> Quantity:
        seen = exposed_s(exchange_s, steps * spent) if hidden else exchange_s
        return (1 + seen / (steps * spent)).named("slowdown", "x")

    slow = slowed(exchange, steps_between, hidden=overlap)
    stages = read_s(message_bytes(step_tokens, model.hidden), link).named("stages_s")
    once = steps_between / steps_between
    splits = {
        "data parallel, every step": slowed(exchange, once, hidden=False),
        "data parallel, behind the next step": slowed(exchange, once, hidden=True),
        f"local steps (DiLoCo), every {_LOCAL_STEPS}": slowed(
            exchange, once * _LOCAL_STEPS, hidden=False
        ),
        "pipeline stages across the link": slowed(stages, once, hidden=True),
        "tensor parallel across the link": slowed(
            stages * _REDUCES * model.layers, once, hidden=False
        ),
        "separate jobs": once.named("slowdown", "x"),
    }
    allowed = spent * tolerable if overlap else spent * (tolerable - 1)
    least = largest(every_step=1, tolerable=ceil(exchange / allowed)).named(
        "least_steps_between", "steps", note="what is seen stays within the tolerable slowdown"
    )
    return Answer(
        "{exchanged_bytes} of gradients take {exchange_s} over {link}: a step of {compute_s} "
        "becomes {slowdown} as long",
        {
            "slowdown": slow,
            "exchange_s": exchange,
            "exchanged_bytes": moved,
            "compute_s": spent,
            "fabric_over_link": (fabric / link).named("fabric_over_link", "x"),
            "least_steps_between": least,
            "pipeline_s": stages,
        },
        table=tuple(
            {
                "split": name,
                "slowdown": value,
                "tolerable": "yes" if holds(value <= tolerable) else "no",
            }
            for name, value in splits.items()
        ),
        notes=(
            "partition: keep tensor, context and pipeline groups inside a site; let only data "
            "parallelism with many local steps, or whole jobs, cross",
            "latency is not counted: thousands of kilometres add tens of milliseconds a message",
        ),
    )
