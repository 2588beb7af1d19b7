"""Past two tiers: a third one, wider switches, rails or planes, at equal endpoints."""

from dataclasses import dataclass

from ridgeline.fleet.plan.clos import Fabric, fabric
from ridgeline.physics.fabric import transceiver_count
from ridgeline.quantity import Number, Quantity, ceil, given
from ridgeline.show import show
from ridgeline.topics import Answer, amount, count, topic

_QUOTE = "assumed of this topic: put your quotation"
_SWITCH = "Quantum-2 QM9700, as in the catalog of parts"
_OPTIC = "400G DR4 module, as in the catalog of parts"


@topic("fabric-tiers", subject="network")
def fabric_tiers(
    endpoints: Number = count(10_240, "Ports of devices to connect.", noun="endpoints", least=2),
    radix: Number = count(64, "Ports of the switch at hand.", noun="ports", least=4),
    wider_radix: Number = count(144, "Ports of the wider switch.", noun="ports", least=4),
    rails: Number = count(8, "Fabrics, if each rail has its own and none joins them."),
    planes: Number = count(4, "Ports into which a card and a switch port can be split.", least=1),
    switch_w: Number = amount(
        "750 W", "W", "A switch without its optics.", interval=("600 W", "1 kW"), source=_SWITCH
    ),
    wider_switch_w: Number = amount(
        "2 kW", "kW", "A wider one.", interval=("1.2 kW", "3 kW"), source=_QUOTE
    ),
    transceiver_w: Number = amount(
        "9 W", "W", "A transceiver.", interval=("8 W", "12 W"), source=_OPTIC
    ),
    switch_usd: Number = amount(
        "35000 USD", "USD", "A switch.", interval=("25000 USD", "45000 USD"), source=_SWITCH
    ),
    wider_switch_usd: Number = amount(
        "100000 USD", "USD", "A wider one.", interval=("60000 USD", "150000 USD"), source=_QUOTE
    ),
    transceiver_usd: Number = amount(
        "750 USD", "USD", "A transceiver.", interval=("500 USD", "1000 USD"), source=_OPTIC
    ),
) -> Answer:
    """Tiers that so many endpoints take, and what a third one costs against ways around it.

    All fabrics are at full bisection. Rails of their own give up the network between rails: such
    traffic has to go over NVLink first. Planes split every card and switch port into slower ones.
    """
    narrow, wide = fabric(endpoints, radix), fabric(endpoints, wider_radix)
    a_rail = ceil(endpoints / rails).named("rail_endpoints", "endpoints")
    own_rail, split = fabric(a_rail, radix), fabric(endpoints, radix * planes)
    prices = _Prices(switch_w, switch_usd, transceiver_w, transceiver_usd)
    wider = _Prices(wider_switch_w, wider_switch_usd, transceiver_w, transceiver_usd)
    each = {
        "narrow": _Priced(narrow, prices, 1, 1),
        "wide": _Priced(wide, wider, 1, 1),
        "rails": _Priced(own_rail, prices, rails, 1),
        "planes": _Priced(split, prices, planes, planes),
    }
    first, second = each["narrow"], each["wide"]
    return Answer(
        "{endpoints} take {tiers} tiers and {switches} with {radix} a switch, or {wide_tiers} "
        "tiers and {wide_switches} with {wider_radix}",
        {
            "switches": first.switches,
            "tiers": narrow.tiers,
            "wide_switches": second.switches,
            "wide_tiers": wide.tiers,
            "two_tier_most": narrow.two_tier_most,
            "wide_two_tier_most": wide.two_tier_most,
            "switch_ratio": (first.switches / second.switches).named("switch_ratio", "x"),
            "cable_ratio": (narrow.cables / wide.cables).named("cable_ratio", "x"),
            "extra_hops": (narrow.hops - wide.hops).named("extra_hops", "hops"),
            "transceivers": first.transceivers,
            "power_w": first.power_w,
            "cost_usd": first.cost_usd,
            "extra_cost_usd": (first.cost_usd - second.cost_usd).named("extra_cost_usd", "MUSD"),
        },
        table=tuple(
            each[key].row(told)
            for key, told in (
                ("narrow", f"one fabric of {show(radix)} a switch"),
                ("wide", f"one fabric of {show(wider_radix)} a switch"),
                ("rails", f"{show(rails)} fabrics, one a rail"),
                ("planes", f"{show(planes)} planes, ports split"),
            )
        ),
        notes=_notes(narrow, radix, wider_radix, wide),
    )


@dataclass(frozen=True, slots=True)
class _Prices:
    """What a switch and a transceiver take."""

    switch_w: Quantity
    switch_usd: Quantity
    transceiver_w: Quantity
    transceiver_usd: Quantity


class _Priced:
    """A fabric, how many of it, and what that takes in watts and dollars."""

    def __init__(self, made: Fabric, prices: _Prices, copies: Number, split: Number) -> None:
        self.made = made
        self.switches = (made.switches * copies).named("all_switches", "switches")
        # A split port has one cable and one module for all its parts.
        self.cables = ceil(made.cables * copies / split).named("all_cables", "cables")
        self.transceivers = transceiver_count(self.cables).named("transceivers")
        power = self.switches * prices.switch_w + self.transceivers * prices.transceiver_w
        cost = self.switches * prices.switch_usd + self.transceivers * prices.transceiver_usd
        self.power_w, self.cost_usd = power.named("power_w"), cost.named("cost_usd", "MUSD")

    def row(self, told: str) -> dict[str, Quantity | str]:
        """One line of the table."""
        return {
            "design": told,
            "tiers": self.made.tiers,
            "switches": self.switches,
            "cables": self.cables,
            "transceivers": self.transceivers,
            "hops": self.made.hops,
            "power": self.power_w,
            "cost": self.cost_usd,
        }


def _notes(narrow: Fabric, radix: Quantity, wider_radix: Quantity, wide: Fabric) -> tuple[str, ...]:
    one = given(1)
    return (
        f"Two tiers end at R^2/2: {show(narrow.two_tier_most)} with {show(one * radix)} ports a "
        f"switch, {show(wide.two_tier_most)} with {show(one * wider_radix)}. Whoever says "
        f"{show(one * radix * radix)} counts R^2, the cables.",
        "Often told: a third tier triples the switches. At equal radix it is 5N/R against 3N/R, "
        "1.67x; 3.33x is three tiers against two of twice the ports. Cables grow by half, for "
        "three of them, and not two, serve each endpoint.",
    )
