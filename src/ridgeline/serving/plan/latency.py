"""What one engine step takes on a machine, and what clients in a closed loop see of it."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.catalog.step_times import ANY, FittedStep
from ridgeline.physics.step_time import closed_loop_tpot_s
from ridgeline.quantity import Number, Provenance, Quantity, given
from ridgeline.serving.plan.decode import Decode, an_engine, one_token
from ridgeline.serving.plan.splits import check_tensor_parallel
from ridgeline.topics import (
    DTYPES,
    Answer,
    a_model,
    amount,
    an_accelerator,
    choice,
    count,
    topic,
)


@topic("step-time", subject="serving")
def step_time_topic(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    tensor_parallel: Number = count(8, "Devices that share each layer.", noun="GPUs"),
    concurrency: Number = count(32, "Clients in a closed loop.", noun="requests"),
    input_tokens: Number = amount("1000", "tokens", "Tokens of a prompt.", least="1"),
    output_tokens: Number = amount("1000", "tokens", "Tokens of an answer.", least="1"),
    dtype: str = choice("fp8", DTYPES, "Type of the weights."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    engine: str = an_engine(ANY),
) -> Answer:
    """Time per output token of a closed loop, from the fitted step-time model.

    The model is the roofline plus what engines add; its coefficients are fitted to published
    measurements (`bench/step_time.py` says how near it comes), or to yours by `ridgeline
    calibrate`. A step decodes one token for each client; every answer is interrupted by the
    prompts of the others. Low and high are as far off as half of the measured points are.
    """
    check_tensor_parallel(model, tensor_parallel)
    node = Decode(model, accelerator, tensor_parallel, dtype, kv_dtype, engine=engine)
    context = (input_tokens + output_tokens / 2).named("mean_context_tokens")
    decode = node.step_s(concurrency, context).named("decode_step_s")
    prefill = node.prefill_s(input_tokens).named("prefill_step_s")
    tpot = closed_loop_tpot_s(decode, prefill, concurrency, output_tokens).named("tpot_s")
    decoded = (concurrency * one_token()).named("decode_tokens")
    return Answer(
        "{tpot_s} per output token with {concurrency} in a closed loop, {output_tokens_per_s}",
        {
            "tpot_s": tpot,
            **(_interval(tpot, node.fit) if node.is_fitted else {}),
            "output_tokens_per_s": (decoded / tpot).named("output_tokens_per_s"),
            "decode_step_s": decode,
            "prefill_step_s": prefill,
        },
        notes=(node.told(),),
    )


def _interval(tpot: Quantity, fit: FittedStep) -> dict[str, Quantity]:
    """Where the measured times of half of the fit's points lie, for a prediction like this."""
    error = given(
        fit.median_error,
        name="median_error",
        provenance=Provenance.FITTED,
        source=f"median of |predicted / measured - 1| over {fit.points:,} points of {fit.id}",
    )
    return {
        "tpot_low_s": (tpot / (1 + error)).named("tpot_low_s"),
        "tpot_high_s": (tpot / (1 - error)).named("tpot_high_s"),
    }
