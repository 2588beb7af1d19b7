"""A paused conversation's cache: recompute it, or load it from a tier, by prompt length."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.prompts import break_even_bytes_per_s
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.quantity import Number, Quantity, largest, smallest
from ridgeline.serving.plan.splits import check_decodes
from ridgeline.show import show
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


@topic("cache-offload", subject="serving")
def cache_offload(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that prefill together.", noun="GPUs"),
    prompts_tokens: tuple[Quantity, ...] = numbers(
        "1k,8k,32k,128k", "tokens", "Lengths of the paused prompts."
    ),
    mfu: Number = amount("0.5", "", "Share of the peak that prefill reaches.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    host_bytes_per_s: Number = amount("50GB/s", "B/s", "From host memory, as one request sees it."),
    host_s: Number = amount("1ms", "s", "Before the first byte from host memory."),
    disk_bytes_per_s: Number = amount("7GB/s", "B/s", "From the local disk."),
    disk_s: Number = amount("2ms", "s", "Before the first byte from the disk."),
    remote_bytes_per_s: Number = amount("3GB/s", "B/s", "From a store over the network."),
    remote_s: Number = amount("15ms", "s", "Before the first byte from that store."),
) -> Answer:
    """For each prompt length, whether a tier gives the cache back faster than recomputing it.

    Attention makes recomputing dearer per token as prompts grow, so the bandwidth that a tier
    needs falls with length.
    """
    check_decodes(model)
    rate = (gpus * accelerator.flop_per_s(dtype)).named("node_flop_per_s")
    tiers = {
        "host": (host_bytes_per_s, host_s),
        "disk": (disk_bytes_per_s, disk_s),
        "remote": (remote_bytes_per_s, remote_s),
    }
    rows = [_length(model, prompt, rate, mfu, kv_dtype, tiers) for prompt in prompts_tokens]
    linear = model.kv_bytes_per_token(kv_dtype) * rate * mfu / model.flop_per_token()
    last = rows[-1]
    return Answer(
        "a tier above {short_bytes_per_s} beats recomputing short prompts; for the longest, "
        f"{show(prompts_tokens[-1])}, {{break_even_bytes_per_s}} is enough: "
        + _advice(str(last["take from"])),
        {
            "short_bytes_per_s": linear.named("short_break_even_bytes_per_s", "GB/s"),
            "break_even_bytes_per_s": _number(last["break-even"]),
            "saved_s": _number(last["saves"]),
        },
        table=tuple(rows),
        notes=(
            "Short prompts are the harder case for a tier: little to compute, and its first byte "
            "takes as long.",
            "Loading also frees the devices for other prompts, which the saved time leaves out.",
        ),
    )


def _advice(way: str) -> str:
    return "recompute it" if way == "recompute" else f"take it from the {way} tier"


def _number(cell: Quantity | str) -> Quantity:
    assert isinstance(cell, Quantity), cell
    return cell


def _length(
    model: Model,
    prompt: Quantity,
    rate: Quantity,
    mfu: Number,
    kv_dtype: str,
    tiers: dict[str, tuple[Number, Number]],
) -> dict[str, Quantity | str]:
    """One length: times of all ways, which is fastest, and what that saves."""
    cache = model.cache_bytes(prompt, kv_dtype)
    again = compute_s(model.prefill_flop(prompt), rate, mfu).named("recompute_s", "ms")
    loads = {
        tier: (first + read_s(cache, speed)).named(f"from_{tier}_s", "ms")
        for tier, (speed, first) in tiers.items()
    }
    best = smallest(recompute=again, **loads)
    return {
        "prompt": prompt,
        "cache": cache,
        "recompute": again,
        **loads,
        "take from": bound(best),
        "saves": largest(none=0 * again, saved=again - best).named("saved_s", "ms"),
        "break-even": break_even_bytes_per_s(cache, again).named("break_even", "GB/s"),
    }
