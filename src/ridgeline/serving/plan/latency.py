"""What one engine step takes on a machine, and what clients in a closed loop see of it."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.catalog.step_times import ANY
from ridgeline.physics.step_time import closed_loop_tpot_s
from ridgeline.quantity import Number, Provenance, given
from ridgeline.serving.plan.steps import step_time
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

ENGINES = (ANY, "vllm", "sglang", "trtllm")
_ONE = given(1, "token", provenance=Provenance.DEFINED, source="one token a sequence and step")


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
    engine: str = choice(ANY, ENGINES, "Engine whose fitted coefficients to take; *: over all."),
) -> Answer:
    """Time per output token of a closed loop, from the fitted step-time model.

    The model is the roofline plus what engines add; its coefficients are fitted to published
    measurements (`bench/step_time.py` says how near it comes), or to yours by `ridgeline
    calibrate`. A step decodes one token for each client; every answer is interrupted by the
    prompts of the others.
    """
    steps = step_time(
        model,
        accelerator,
        tensor_parallel=tensor_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        engine=engine,
    )
    decode_tokens = (concurrency * _ONE).named("decode_tokens")
    cached = (concurrency * (input_tokens + output_tokens / 2)).named("cached_tokens")
    decode = steps.decode_s(decode_tokens, cached).named("decode_step_s")
    prefill = steps.prefill_s(input_tokens).named("prefill_step_s")
    tpot = closed_loop_tpot_s(decode, prefill, concurrency, output_tokens).named("tpot_s")
    return Answer(
        "{tpot_s} per output token with {concurrency} in a closed loop, {output_tokens_per_s}",
        {
            "tpot_s": tpot,
            "output_tokens_per_s": (decode_tokens / tpot).named("output_tokens_per_s"),
            "decode_step_s": decode,
            "prefill_step_s": prefill,
        },
        notes=(f"Coefficients: {steps.coefficients.source} of the catalog's step times.",),
    )
