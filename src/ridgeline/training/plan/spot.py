"""Spot training: a discount against the work that preemptions lose."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.physics.money import (
    preemption_waste_s,
    spot_break_even_exact_s,
    spot_break_even_s,
    spot_stretch,
)
from ridgeline.quantity import Number, Quantity, floor, given, holds
from ridgeline.topics import Answer, amount, an_accelerator, count, topic

_CADENCES_MIN = (10, 30, 60)


@topic("spot-training", subject="cost")
def spot_training(
    discount: Number = amount(
        "0.6", "", "Share that spot saves on the price.", least="0.01", most="0.99"
    ),
    interval_s: Number = amount("30min", "min", "Work between two checkpoints.", least="1s"),
    restart_s: Number = amount("5min", "min", "From a preemption to working again.", least="0"),
    node_loss_s: Number = amount(
        "20h",
        "h",
        "Mean time between preemptions of one node.",
        least="1min",
        interval=("5h", "100h"),
        source="assumed: 5 % an hour, which some zones see",
    ),
    nodes: Number = count(1, "Nodes of the gang: losing one stops all.", noun="nodes"),
    accelerator: Accelerator = an_accelerator("h100-sxm", "Accelerator whose hours are bought."),
    price: Number = amount(
        "0 USD/h", "USD/h", "On-demand price of a device; 0 takes the catalog's."
    ),
) -> Answer:
    """When spot is worth its preemptions: cost of a useful hour, break-even, and largest gang.

    First order takes half an interval and a restart for each loss. The exact form lets losses
    strike while lost work is done again, and takes them to be exponential.
    """
    mean = (node_loss_s / nodes).named("gang_loss_s", note="mean time between losses of the gang")
    waste = preemption_waste_s(interval_s, restart_s)
    first = spot_break_even_s(waste, discount)
    exact = spot_break_even_exact_s(interval_s, restart_s, discount)
    stretch = spot_stretch(interval_s, restart_s, mean)
    listed = accelerator.price_or(price)
    useful = (listed * (1 - discount) * stretch).named("useful_price", "USD/h")
    ratio = (useful / listed).named("cost_over_on_demand", "x")
    return Answer(
        "spot pays while losses come further apart than {break_even_exact_s} ({break_even_s} to "
        "first order); a useful hour costs {useful_price}, {cost_over_on_demand} the "
        "{device_price} on demand",
        {
            "break_even_exact_s": exact.named("break_even_exact_s", "s"),
            "break_even_s": first.named("break_even_s", "s", note="first order"),
            "preemption_waste_s": waste,
            "lost_share": (1 - 1 / stretch).named("lost_share", "%", note="expected, of wall time"),
            "useful_price": useful,
            "cost_over_on_demand": ratio,
            "device_price": listed,
            "largest_gang": floor(node_loss_s / exact).named(
                "largest_gang", "nodes", note="beyond it, never on spot"
            ),
            "first_order_excess": (first / exact - 1).named("first_order_excess", "%"),
        },
        table=tuple(_cadence(minutes, restart_s, discount) for minutes in _CADENCES_MIN),
        notes=(
            accelerator.price_note(price),
            "gangs multiply the rate: with n nodes losses come n times as often, so a large gang "
            "belongs on reserved machines whatever the discount",
            "the first-order rule is too pessimistic near break-even: it counts more loss than "
            "an interval that is often cut short can lose",
            "never on spot: gangs past the largest, restarts that take as long as the break-even, "
            "and anything with a deadline that one bad day would miss",
        ),
        ok=holds(ratio <= 1),
    )


def _cadence(minutes: int, restart: Quantity, discount: Quantity) -> dict[str, Quantity | str]:
    interval = given(minutes, "min", name="cadence_s", source="a usual cadence")
    first = spot_break_even_s(preemption_waste_s(interval, restart), discount)
    return {
        "interval": interval,
        "first_order": first,
        "exact": spot_break_even_exact_s(interval, restart, discount),
    }
