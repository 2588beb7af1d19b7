"""What a trained token costs, and when a generated one costs less."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.money import (
    decode_tokens_per_s,
    training_usd_per_token,
    usd_per_token,
)
from ridgeline.physics.training import training_flop_per_token, training_tokens_per_s
from ridgeline.quantity import Number, Quantity, value_of
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic

#: Forward passes that a trained token costs: its own, and a backward of twice its work.
_PASSES = 3


@topic("training-cost", subject="cost")
def training_cost(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    tokens: Number = amount("15T", "Ttokens", "Tokens of the run.", least="1"),
    price: Number = amount("0 USD/h", "USD/h", "Price of a device; 0 takes the catalog's."),
    mfu: Number = amount(
        "0.4", "", "Share of the peak that training reaches.", least="0.001", most="1"
    ),
    dtype: str = choice("bf16", ("bf16", "fp8"), "Type of the matrix products."),
    gpus: Number = count(8192, "Devices of the run.", noun="GPUs"),
    node_gpus: Number = count(8, "Devices of a serving node.", noun="GPUs"),
    batch: Number = count(64, "Sequences that a serving node decodes at once.", noun="sequences"),
    decode_step_s: Number = amount("25ms", "ms", "One decode step of that node.", least="0.1ms"),
) -> Answer:
    """Cost of a trained token and of a run, beside that of a generated token."""
    flop = training_flop_per_token(_visited_params(model))
    peak, each = accelerator.flop_per_s(dtype), accelerator.price_or(price)
    trained = training_usd_per_token(flop, each, peak, mfu).named("training_cost", "USD/Mtokens")
    node = (each * node_gpus).named("node_price", "USD/h")
    decoded = decode_tokens_per_s(batch, decode_step_s).named("node_tokens_per_s")
    made = usd_per_token(node, decoded).named("decode_cost", "USD/Mtokens")
    even = (node / trained).named("even_tokens_per_s")
    rate = training_tokens_per_s(gpus, peak, mfu, flop)
    read = (trained / _PASSES).named(
        "prefill_cost", "USD/Mtokens", note="2N a token at the same MFU"
    )
    return Answer(
        "training costs {training_cost}, {run_cost} for {tokens} at {device_price}; generating "
        "costs {decode_cost}, and less than training above {even_tokens_per_s} a node",
        {
            "training_cost": trained,
            "run_cost": (trained * tokens).named("run_cost", "USD"),
            "decode_cost": made,
            "training_over_decode": (trained / made).named("training_over_decode", "x"),
            "even_tokens_per_s": even,
            "prefill_cost": read,
            "gpu_time_s": (tokens / rate * gpus).named("gpu_time_s", "h", note="GPU-hours"),
            "run_s": (tokens / rate).named("run_s", "days"),
            "device_price": each,
        },
        notes=(
            accelerator.price_note(price),
            "The MFU is taken as given; which one the best layout reaches: "
            f"ridgeline plan training-layout --model {model.id} --accelerator {accelerator.id} "
            f"--gpus {_first(gpus):.0f}",
            "training is cheaper a token only while decoding is memory-bound: a node that decodes "
            "fast enough, with a large batch, makes tokens for less",
            "reading a prompt costs a third of training on it at the same MFU",
        ),
    )


def _visited_params(model: Model) -> Quantity:
    """Parameters that a token passes: of a dense model all of `params`."""
    return model.active_params if model.is_moe else model.params


def _first(number: Quantity) -> float:
    """The number; of a sweep its first point."""
    return float(value_of(number).flat[0] if hasattr(number.value, "flat") else number.value)
