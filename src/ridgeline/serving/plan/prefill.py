"""A budget of time to first token: what fits into it, and what long prompts need instead."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.prompts import (
    affordable_causal_tokens,
    affordable_tokens,
    prefill_queue_s,
)
from ridgeline.physics.roofline import compute_s
from ridgeline.quantity import Number, Quantity, ceil, floor, holds, largest
from ridgeline.serving.plan.decode import one_token
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


@topic("ttft-budget", subject="serving")
def ttft_budget(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that prefill together.", noun="GPUs"),
    target_s: Number = amount("200ms", "s", "Time to first token that is promised.", least="0.1ms"),
    mfu: Number = amount(
        "0.4", "", "Share of the peak that prefill reaches, 2N a token.", most="1"
    ),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
    host_s: Number = amount("10ms", "s", "Network, tokenizer and scheduler before the prefill."),
    requests_per_s: Number = amount("1requests/s", "requests/s", "Load on these devices."),
    mean_prompt_tokens: Number = amount("1k", "tokens", "Mean prompt, for the queue.", least="1"),
    prompts_tokens: tuple[Quantity, ...] = numbers("1k,4k,16k", "tokens", "Prompts to split up."),
) -> Answer:
    """How many prompt tokens a time to first token allows, and where the time goes.

    The queue is of prompts that arrive at random on these devices; its mean wait is taken.
    """
    rate = (gpus * accelerator.flop_per_s(dtype)).named("node_flop_per_s")
    queue = _queue(model, rate, mfu, requests_per_s, mean_prompt_tokens)
    room = largest(room=target_s - host_s - queue, none=0 * target_s).named("room_s", "ms")
    budget = (room * rate * mfu).named("budget_flop", "TFLOP")
    linear = affordable_tokens(budget, model.flop_per_token()).named("linear_tokens")
    exact = _with_attention(model, budget, linear)
    rows = tuple(
        _stages(model, prompt, rate, mfu, host_s, queue, target_s) for prompt in prompts_tokens
    )
    return Answer(
        "{target_s} allow {token_budget} of prompt at {mfu} MFU on {gpus}; counting attention, "
        "{token_budget_with_attention}",
        {
            "token_budget": floor(linear).named("token_budget", "tokens"),
            "token_budget_with_attention": floor(exact).named("budget_with_attention", "tokens"),
            "queue_s": queue,
            "room_s": room,
            "tokens_per_s": (rate * mfu / model.flop_per_token()).named("prefill_tokens_per_s"),
        },
        table=rows,
        notes=(
            "An MFU quoted for prefill counts 2N a token; attention comes on top, and at long "
            "prompts it is most of the work.",
            "Chunking a prompt keeps other streams flowing but does not shorten its own first "
            "token. Longer prompts need cached prefixes (the share is in the table), more devices "
            "on one prompt, narrower arithmetic, or a longer promise.",
            "At low load the host's part and the first burst weigh more than the arithmetic: "
            "measure host_s.",
        ),
        ok=holds(exact > 0),
    )


def _queue(model: Model, rate: Quantity, mfu: Number, per_s: Number, mean: Number) -> Quantity:
    service = compute_s(model.prefill_flop(mean), rate, mfu).named("mean_prefill_s", "ms")
    return prefill_queue_s(per_s, service).named("queue_s", "ms")


def _with_attention(model: Model, budget: Quantity, linear: Quantity) -> Quantity:
    """Attention taken as quadratic with what it is at the linear budget; 0 where nothing fits."""
    probe = largest(linear=linear, one=one_token())
    square = model.attention_flop(probe) / (probe * probe)
    return affordable_causal_tokens(
        budget, model.flop_per_token(), square.named("attention_flop_per_token_token")
    )


def _stages(
    model: Model,
    prompt: Quantity,
    rate: Quantity,
    mfu: Number,
    host_s: Number,
    queue: Quantity,
    target_s: Number,
) -> dict[str, Quantity | str]:
    """One prompt: where its time goes, and what it would need to keep the promise."""
    prefill = compute_s(model.prefill_flop(prompt), rate, mfu).named("prefill_s", "ms")
    room = largest(room=target_s - host_s - queue, none=1e-9 * target_s)
    over = largest(none=0 * (prefill / room), over=1 - room / prefill)
    return {
        "prompt": prompt,
        "host": host_s.named("host_part_s", "ms"),
        "queue": queue,
        "prefill": prefill,
        "first token": (host_s + queue + prefill).named("ttft_s", "ms"),
        "cached share needed": over.named("cached_share_needed", "%"),
        "or devices": ceil(prefill / room).named("times_the_devices", "x"),
    }
