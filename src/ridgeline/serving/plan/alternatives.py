"""Another accelerator instead of the usual one: what it costs, what to measure before buying."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.physics.roofline import ridge_flop_per_byte
from ridgeline.quantity import Number, Quantity, holds, largest
from ridgeline.serving.plan.meshes import pair_bytes_per_s
from ridgeline.topics import DTYPES, Answer, amount, an_accelerator, choice, count, flag, topic


def _node_price(accelerator: Accelerator, devices: Number) -> Quantity:
    price = accelerator.price_usd_per_s * devices
    return price.named(f"{accelerator.id}.node_price_usd_per_s", "USD/h")


@topic("node-economics", subject="serving")
def node_economics(
    accelerator: Accelerator = an_accelerator("trainium2", "The node in question."),
    devices: Number = count(16, "Devices in it.", noun="chips"),
    mfu: Number = amount("0.35", "", "Share of the peak that it was measured to reach.", most="1"),
    reference: Accelerator = an_accelerator("h100-sxm", "The node it is compared with."),
    reference_devices: Number = count(8, "Devices in that.", noun="GPUs"),
    reference_mfu: Number = amount("0.4", "", "Share of the peak measured there.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
) -> Answer:
    """Which of two nodes gives the cheaper useful FLOP, and the MFU at which they break even.

    Prices are the catalog's medians; `--set ID.node_price_usd_per_s=50USD/h` sets a node's own.
    """
    peak = (devices * accelerator.flop_per_s(dtype)).named("node_flop_per_s")
    theirs = (reference_devices * reference.flop_per_s(dtype)).named("reference_node_flop_per_s")
    price, other = _node_price(accelerator, devices), _node_price(reference, reference_devices)
    cost = (price / (peak * mfu)).named("usd_per_useful_flop", "USD/EFLOP")
    reference_cost = (other / (theirs * reference_mfu)).named("reference_usd", "USD/EFLOP")
    even = (price / (peak * reference_cost)).named("break_even_mfu", "%")
    return Answer(
        "{accelerator} is the cheaper one above {break_even_mfu} MFU; at {mfu} its useful FLOP "
        "costs {cost_ratio} of the other's",
        {
            "break_even_mfu": even,
            "usd_per_useful_flop": cost,
            "reference_usd_per_useful_flop": reference_cost,
            "cost_ratio": (cost / reference_cost).named("cost_ratio", "x"),
            "flop_ratio": (peak / theirs).named("flop_ratio", "x"),
            "price_ratio": (price / other).named("node_price_ratio", "x"),
        },
        notes=(
            "Peak FLOP/s decide nothing: the ratio of achieved ones does, over that of prices.",
            "An MFU above 100 % to break even means that no kernel can make up for the price.",
        ),
        ok=holds(cost <= reference_cost),
    )


@topic("adopt-accelerator", subject="serving")
def adopt_accelerator(
    accelerator: Accelerator = an_accelerator("mi300x", "The accelerator in question."),
    reference: Accelerator = an_accelerator("h100-sxm", "The one in use."),
    price_ratio: Number = amount("1", "", "Its hourly price over the other's.", least="0.01"),
    achieved: Number = amount("0.7", "", "Share of its bandwidth that decode reaches.", most="1"),
    reference_achieved: Number = amount("0.86", "", "The same of the one in use.", most="1"),
    mfu: Number = amount("0.4", "", "Share of its peak that prefill reaches.", most="1"),
    reference_mfu: Number = amount("0.5", "", "The same of the one in use.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
    has_paged_attention: bool = flag(True, "Whether there is a kernel for paged attention."),
    has_grouped_gemm: bool = flag(True, "Whether there is one for the experts of an MoE."),
    has_low_bits: bool = flag(True, "Whether there are kernels for the quantised weights in use."),
    has_all_reduce: bool = flag(True, "Whether there is a fast all-reduce within a node."),
    has_graphs: bool = flag(True, "Whether steps can be captured and replayed."),
) -> Answer:
    """Whether to adopt another accelerator for serving, and what to measure before.

    Decode is bound by achieved bandwidth, prefill by achieved FLOP/s; each is compared at price.
    """
    kernels = {
        "paged attention": has_paged_attention,
        "grouped GEMM": has_grouped_gemm,
        "low-bit weights": has_low_bits,
        "all-reduce": has_all_reduce,
        "graphs": has_graphs,
    }
    missing = [name for name, is_there in kernels.items() if not is_there]
    bandwidth = accelerator.memory_bytes_per_s / reference.memory_bytes_per_s
    compute = accelerator.flop_per_s(dtype) / reference.flop_per_s(dtype)
    losing = (price_ratio / bandwidth).named("losing_fraction", "%")
    losing_mfu = (price_ratio / compute).named("losing_mfu_fraction", "%")
    decode = (price_ratio * reference_achieved / (bandwidth * achieved)).named("decode_cost", "x")
    prefill = (price_ratio * reference_mfu / (compute * mfu)).named("prefill_cost", "x")
    worst = largest(decode=decode, prefill=prefill).named("worst_cost_ratio", "x")
    is_good = holds(worst <= 1) and not missing
    return Answer(
        ("Go: " if is_good else "No go yet: ")
        + "{accelerator} loses decode below {losing_fraction} of the bandwidth share that "
        "{reference} achieves; as given, it costs {decode_cost_ratio} for decode and "
        "{prefill_cost_ratio} for prefill" + (f"; missing: {', '.join(missing)}" * bool(missing)),
        {
            "losing_fraction": losing,
            "losing_achieved": (losing * reference_achieved).named("losing_achieved", "%"),
            "decode_cost_ratio": decode,
            "prefill_cost_ratio": prefill,
            "losing_mfu_fraction": losing_mfu,
            "memory_ratio": (accelerator.memory_bytes / reference.memory_bytes).named(
                "memory_ratio", "x"
            ),
            "worst_cost_ratio": worst,
        },
        table=_measurements(
            accelerator, reference, losing * reference_achieved, losing_mfu * reference_mfu, dtype
        ),
        notes=(
            "Capacity can turn the decision: where the larger memory saves a whole device, the "
            "comparison is of fewer devices, so set the price ratio for the node that is needed.",
            f"Missing kernels: {', '.join(missing) or 'none'}. A missing kernel is no go for the "
            "models that need it, whatever the ratios.",
        ),
        ok=is_good,
    )


def _measurements(
    one: Accelerator, other: Accelerator, bandwidth: Quantity, mfu: Quantity, dtype: str
) -> tuple[dict[str, Quantity | str], ...]:
    """What to measure first, with the value that decides."""
    ridge = ridge_flop_per_byte(one.flop_per_s(dtype), one.memory_bytes_per_s)

    def row(what: str, bar: Quantity, why: str) -> dict[str, Quantity | str]:
        return {"measure": what, "against": bar, "because": why}

    return (
        row(
            "bytes/s of a decode step at your batch and context",
            (bandwidth * one.memory_bytes_per_s).named("bandwidth_to_beat", "TB/s"),
            "below it decode costs more than today",
        ),
        row(
            "FLOP/s of a prefill with your kernels",
            (mfu * one.flop_per_s(dtype)).named("rate_to_beat", "TFLOP/s"),
            "below it prefill costs more than today",
        ),
        row(
            "GEMM at the ridge batch",
            ridge.named("ridge_to_reach", "FLOP/B"),
            "where the curve bends tells how far the data sheet can be trusted",
        ),
        row(
            "bytes/s of one pair of devices",
            pair_bytes_per_s(one).named("pair_rate", "GB/s"),
            "tensor parallelism of two gets only this, a full node more",
        ),
        row(
            "all-reduce of a node at your message size",
            other.link_bytes_per_s.named("all_reduce_to_beat", "GB/s"),
            "two a layer in every step",
        ),
        row(
            "bytes free once the engine is up",
            one.memory_bytes.named("memory_sold", "GB"),
            "graphs, collectives and the runtime take their part first",
        ),
        row(
            "accuracy on your own evaluation, in the type you will serve",
            one.flop_per_s(dtype).named("rate_of_the_type", "TFLOP/s"),
            "fp8 formats differ (FNUZ against OCP), and kernels round differently",
        ),
    )
