"""What a power cap costs in throughput, and what an uneven one costs a synchronous job."""

from typing import Any

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError
from ridgeline.physics.power import capped_throughput_share, clock_share
from ridgeline.physics.roofline import ridge_flop_per_byte
from ridgeline.quantity import Number, Provenance, Quantity, given, holds, largest
from ridgeline.topics import DTYPES, Answer, amount, an_accelerator, choice, topic

#: Caps of the curve in the table.
CURVE = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


@topic("power-cap", subject="fleet")
def power_cap(
    accelerator: Accelerator = an_accelerator("h100-sxm", "Device that is capped."),
    cap: Number = amount("0.7", "", "Share of board power that is left.", least="0.05", most="1"),
    static_share: Number = amount(
        "0", "", "Share of board power that does not fall with the clock.", most="0.9",
        interval=("0", "0.3"), source="0 is the cube law; leakage and memory make it up to 0.3",
    ),
    intensity: Number = amount(
        "1000 FLOP/B", "FLOP/B", "Work for each byte read: decode of few streams has 1 to 30.",
        least="0.01 FLOP/B",
    ),
    uneven: Number = amount(
        "0.1", "", "How far single ranks are capped below and above that.", most="0.5"
    ),
    voltage_floor: Number = amount(
        "0.5", "", "Clock below which voltage falls no more.", least="0.1", most="1"
    ),
    dtype: str = choice("bf16", DTYPES, "Type of the arithmetic."),
) -> Answer:  # fmt: skip
    """Throughput that a power cap costs, by how memory-bound the work is, even and uneven."""
    _above_static(cap, static_share, uneven)
    ridge = ridge_flop_per_byte(accelerator.flop_per_s(dtype), accelerator.memory_bytes_per_s)

    def loss(at: Number) -> Number:
        clock = clock_share(at, static_share, voltage_floor)
        return 1 - capped_throughput_share(clock, intensity, ridge)

    even = loss(cap).named("loss", "%")
    lowest = (cap - uneven).named("lowest_cap")
    slowest = loss(lowest).named("loss_uneven", "%")
    saved = (accelerator.tdp_w * (1 - cap)).named("power_saved", "W")
    gain = ((1 - even) / cap - 1).named("work_per_joule_gain", "%")
    return Answer(
        "A cap at {cap} of board power costs {loss} of throughput; with single ranks {uneven} "
        "lower it costs {loss_uneven}, since all wait for the slowest",
        {
            "loss": even,
            "clock": clock_share(cap, static_share, voltage_floor).named("clock", "%"),
            "loss_uneven": slowest,
            "uniformity_penalty": (slowest - even).named("uniformity_penalty", "%"),
            "power_saved": saved,
            "work_per_joule_gain": gain,
            "ridge": ridge,
        },
        tuple(_row(share, loss, accelerator, static_share) for share in CURVE),
        _NOTES,
    )


_NOTES = (
    "Power falls with the cube of the clock only while voltage falls with it and nothing leaks: a "
    "static share makes the same cap dearer.",
    "A synchronous job runs at the pace of its most capped rank: the same power, spread evenly, "
    "gives more. Replicas that serve apart lose only their own share.",
    "Below the ridge memory binds, and memory keeps its clock: such work loses nothing until the "
    "cap brings arithmetic down to it.",
)


def _row(
    share: float, loss: Any, accelerator: Accelerator, static_share: Number
) -> dict[str, Quantity | str]:
    at = given(
        share,
        name=f"cap_at_{share:.0%}".rstrip("%"),
        provenance=Provenance.ASSUMED,
        source="a point of the curve",
    )
    # The curve stops where nothing is left to cap.
    usable = largest(cap=at, static=static_share)
    return {
        "cap": at,
        "power": (accelerator.tdp_w * usable).named(f"power_at_{share:.0%}".rstrip("%"), "W"),
        "loss": loss(usable).named(f"loss_at_{share:.0%}".rstrip("%"), "%"),
    }


def _above_static(cap: Number, static_share: Number, uneven: Number) -> None:
    if not holds(cap - uneven > static_share):
        raise SpecError(
            "the lowest cap leaves nothing above static power", where="cap",
            remedy="a higher cap, or a smaller uneven or static-share",
        )  # fmt: skip
