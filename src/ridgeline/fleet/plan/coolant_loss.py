"""What happens when the coolant stops: how fast a die warms, and who can act before it trips."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError
from ridgeline.fleet.plan.cooling import celsius
from ridgeline.physics.heat import heat_capacity_j_per_k, heating_k_per_s, warm_up_s
from ridgeline.quantity import Number, Provenance, Quantity, choose, given, holds, smallest
from ridgeline.topics import Answer, amount, an_accelerator, stem, topic

#: Who can act on a lost flow, fastest first: the seconds after which it has acted.
LAYERS = (
    ("power_brake", 0.01, "the board drops its clocks when the die or a pin says so"),
    ("flow_switch", 2.0, "the rack notices low flow and brakes its nodes"),
    ("node_shutdown", 10.0, "the controller (BMC) powers the node off"),
    ("scheduler_drain", 60.0, "jobs save and leave"),
    ("operator", 300.0, "is paged, looks, acts"),
)


@topic("coolant-loss", subject="fleet")
def coolant_loss(
    accelerator: Accelerator = an_accelerator("h100-sxm", "Device under the cold plate."),
    water_kg: Number = amount("40 g", "g", "Coolant within the cold plate.", least="1 g"),
    metal_kg: Number = amount("0.5 kg", "kg", "Copper of the cold plate."),
    start_c: Number = amount("50 C", "C", "Temperature when the flow is lost."),
    limit_c: Number = amount("87 C", "C", "Temperature at which the device trips."),
    flow_left: Number = amount("0", "", "Share of the flow that is left.", most="0.99"),
    inlet_c: Number = amount("30 C", "C", "Temperature of the coolant that still comes."),
    braked_share: Number = amount(
        "0.3", "", "Power that the brake leaves, of full power.", least="0.01", most="1"
    ),
) -> Answer:
    """How fast a die warms once coolant is lost, seconds to its trip, and who acts in time."""
    celsius(start_c, limit_c, inlet_c)
    _in_order(inlet_c, start_c, limit_c)
    power_w, margin_k = accelerator.tdp_w, (limit_c - start_c).named("margin_k", "K")
    capacity = heat_capacity_j_per_k(water_kg, metal_kg)
    rate = heating_k_per_s(power_w, capacity, flow_left)
    # What still flows carries heat in proportion to how much warmer than its inlet the die is.
    carried = (power_w * flow_left / (start_c - inlet_c)).named("carried_w_per_k", "W/K")
    decay = (carried / capacity).named("decay_per_s")
    trip = warm_up_s(margin_k, rate, decay).named("seconds_to_trip", "s")
    net = braked_share - flow_left
    warms = net > 0
    slow = heating_k_per_s(
        power_w, capacity, 1 - choose(warms, net, braked_share, why="warming even braked")
    )
    forever = trip * float("inf")
    never = holds(trip >= forever)
    braked = choose(warms, warm_up_s(margin_k, slow, decay), forever, why="warming even braked")
    water_only = heating_k_per_s(power_w, heat_capacity_j_per_k(water_kg, 0 * metal_kg))
    layers = tuple(_layer(*layer, trip, (start_c, limit_c, rate)) for layer in LAYERS)
    in_time = [str(row["layer"]) for row in layers if row["in time"] == "yes"]
    return Answer(
        "{heating_rate}: from {start_c} to {limit_c} in {seconds_to_trip}"
        if not never
        else "{heating_rate} at first, and it settles below {limit_c}: what flows is enough",
        {
            "seconds_to_trip": trip,
            "heating_rate": rate.named("heating_rate", "K/s"),
            "seconds_braked": braked.named("seconds_braked", "s"),
            "heat_capacity": capacity.named("heat_capacity", "J/K"),
            "water_only_rate": water_only.named("water_only_rate", "K/s"),
            "power": power_w,
        },
        layers,
        (f"In time: {', '.join(in_time) or 'none'}.", *_NOTES),
        ok=bool(in_time),
    )


_NOTES = (
    "The 2 K/s that are often said of a few tens of grams of water need the copper of the plate "
    "too: water_only_rate is without it.",
    "seconds_braked is what the power brake buys when it acts at once; it does not replace flow.",
)


def _in_order(inlet_c: Number, start_c: Number, limit_c: Number) -> None:
    for cold, warm in ((inlet_c, start_c), (start_c, limit_c)):
        if not holds(cold < warm):
            raise SpecError(
                f"not above {stem(cold.name)}", where=stem(warm.name), remedy="a warmer one"
            )


def _layer(
    name: str, after: float, does: str, trip: Number, warming: tuple[Number, Number, Number]
) -> dict[str, Quantity | str]:
    """One layer: when it has acted, how warm the die is then at most, and whether that is in time.

    In a sweep it is in time only if it is at every point.
    """
    start_c, limit_c, rate = warming
    acts = given(
        after, "s", name=f"{name}_s", provenance=Provenance.ASSUMED,
        source="usual reaction times; measure yours", note=does,
    )  # fmt: skip
    in_time = holds(acts < trip)
    warm = smallest(at_that_rate=start_c + rate * acts, limit=limit_c).named(f"{name}_c", "C")
    return {
        "layer": name.replace("_", " "),
        "acts after": acts,
        "in time": "yes" if in_time else "no",
        "die by then": warm,
        "does": does,
    }
