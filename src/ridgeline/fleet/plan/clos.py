"""Clos fabrics: how many switches, cables and hops so many endpoints take, and what they give.

`fabric` is the one way in which plans of the fleet count a fabric; its numbers are quantities, so a
plan that uses it can be asked why.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ridgeline.catalog.network import switch as switch_of
from ridgeline.errors import SpecError
from ridgeline.physics.fabric import (
    aggregation_switches,
    bisection_bytes_per_s,
    core_links,
    core_switches,
    crossing_slowdown,
    leaf_down_ports,
    leaf_switches,
    spine_switches,
    switch_hops,
    three_tier_endpoints,
    transceiver_count,
    two_tier_endpoints,
)
from ridgeline.quantity import Number, Provenance, Quantity, choose, given, largest
from ridgeline.show import show
from ridgeline.topics import Answer, amount, choice, count, topic

_ALONE = "one switch has the ports"
_TWO = "two tiers reach"
#: Switches of the catalog of parts, which knows their ports at each rate.
SWITCHES = (
    "quantum-2-qm9700",
    "quantum-x800-q3400",
    "spectrum-4-sn5600",
    "spectrum-4-sn5400",
    "spectrum-6-sn6600",
)
_NONE = "none"
_TIERS = tuple(
    given(n, provenance=Provenance.DEFINED, source="tiers of switches") for n in (1, 2, 3)
)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A counted fabric. `middle` is 0 with two tiers, `middle` and `top` with one switch."""

    tiers: Quantity
    leaves: Quantity
    middle: Quantity
    top: Quantity
    switches: Quantity
    access_cables: Quantity
    uplink_cables: Quantity
    cables: Quantity
    hops: Quantity
    down_ports: Quantity
    up_ports: Quantity
    oversubscription: Quantity
    two_tier_most: Quantity
    three_tier_most: Quantity


def fabric(
    endpoints: Quantity,
    radix: Quantity,
    oversubscription: Number = 1.0,
    top_radix: Quantity | None = None,
    core_oversubscription: Number = 1.0,
    where: str = "endpoints",
) -> Fabric:
    """The fabric with the fewest tiers; SpecError where three do not reach, naming `where`."""
    crown = radix if top_radix is None else top_radix
    down = leaf_down_ports(radix, oversubscription).named("down_ports", "ports")
    up = largest(rest=radix - down, one=1).named("up_ports", "ports")
    two_most = two_tier_endpoints(down, crown).named("two_tier_most", "endpoints")
    three_most = three_tier_endpoints(down, radix, crown).named("three_tier_most", "endpoints")
    _check_reach(endpoints, three_most, where)
    alone, two = endpoints <= radix, endpoints <= two_most
    leaves = choose(alone, 1, leaf_switches(endpoints, down), why=_ALONE)
    leaves = leaves.named("leaves", "leaves")
    uplinks = choose(alone, 0, leaves * up, why=_ALONE).named("uplinks")
    spines = spine_switches(leaves, up, crown).named("spines", "spines")
    core_cables = core_links(leaves, up, core_oversubscription).named("core_cables", "cables")
    middle = choose(two, 0, aggregation_switches(leaves, up, radix), why=_TWO)
    upper = choose(two, spines, core_switches(core_cables, crown), why=_TWO)
    top = choose(alone, 0, upper, why=_ALONE).named("top_switches", "switches")
    middle = middle.named("middle_switches", "switches")
    third = choose(two, 0, core_cables, why=_TWO)
    tiers = choose(alone, _TIERS[0], choose(two, *_TIERS[1:], why=_TWO), why=_ALONE)
    tiers = tiers.named("tiers")
    return Fabric(
        tiers=tiers,
        leaves=leaves,
        middle=middle,
        top=top,
        switches=(leaves + middle + top).named("switches", "switches"),
        access_cables=(endpoints * 1).named("access_cables", "cables"),
        uplink_cables=(uplinks + third).named("uplink_cables", "cables"),
        cables=(endpoints + uplinks + third).named("cables", "cables"),
        hops=switch_hops(tiers).named("hops", "hops"),
        down_ports=down,
        up_ports=up,
        oversubscription=choose(alone, 1, down / up, why=_ALONE).named(
            "leaf_oversubscription", "x"
        ),
        two_tier_most=two_most,
        three_tier_most=three_most,
    )


def somewhere(condition: Any) -> bool:
    """Whether a condition holds; of a sweep, whether it holds at any point."""
    return bool(condition.any()) if hasattr(condition, "any") else bool(condition)


def _check_reach(endpoints: Quantity, most: Quantity, where: str) -> None:
    if somewhere(endpoints > most):
        raise SpecError(
            f"{show(endpoints)} are beyond three tiers, which end at {show(most)}",
            where=where,
            remedy="switches with more ports, several planes, or more oversubscription",
        )


@topic("clos", subject="network")
def clos(
    endpoints: Number = count(512, "Ports of devices to connect, one plane.", noun="endpoints"),
    radix: Number = count(64, "Ports of a switch at the endpoints' speed.", noun="ports", least=4),
    switch: str = choice(_NONE, (_NONE, *SWITCHES), "Take the ports of this switch at --link."),
    top_radix: Number = count(
        0, "Ports of a top switch; 0: as the others.", noun="ports", least=0, most=100_000
    ),
    oversubscription: Number = amount(
        "1", "x", "Ports of a leaf downward for each upward.", least="1", most="63"
    ),
    core_oversubscription: Number = amount(
        "1", "x", "The same between the middle tier and the core of three.", least="1", most="64"
    ),
    link_bytes_per_s: Number = amount("400 Gb/s", "Gb/s", "Rate of a port, one direction."),
    copper_share: Number = amount(
        "0 %", "%", "Share of the endpoints' cables that are copper.", most="100 %"
    ),
    crossing_share: Number = amount(
        "100 %", "%", "Share of the traffic that leaves its leaf.", most="100 %"
    ),
) -> Answer:
    """How far a Clos fabric of one kind of switch reaches, and what it takes for so many endpoints.

    Leaves with D ports down and U up; spines take all uplinks. Two tiers end where a spine has no
    port for one more leaf, three where the core has none for one more pod.
    """
    radix = radix if switch == _NONE else _ports(switch, link_bytes_per_s)
    crown = choose(top_radix > 0, top_radix, radix, why="the top tier has its own radix")
    crown = crown.named("crown_radix", "ports")
    made = fabric(endpoints, radix, oversubscription, crown, core_oversubscription)
    optical = (made.cables - made.access_cables * copper_share).named("optical_cables", "cables")
    total = _total_oversubscription(made, core_oversubscription)
    return Answer(
        f"{{endpoints}} on switches of {show(radix)} take {{switches}} in {{tiers}} tiers; two "
        "tiers end at {two_tier_most}",
        {
            "switches": made.switches,
            "tiers": made.tiers,
            "leaves": made.leaves,
            "middle_switches": made.middle,
            "top_switches": made.top,
            "cables": made.cables,
            "transceivers": transceiver_count(optical).named("transceivers"),
            "hops": made.hops,
            "two_tier_most": made.two_tier_most,
            "three_tier_most": made.three_tier_most,
            "oversubscription_made": total,
            "slowdown": crossing_slowdown(crossing_share, total).named("slowdown", "x"),
            "bisection_bytes_per_s": bisection_bytes_per_s(
                endpoints, link_bytes_per_s, total
            ).named("bisection_bytes_per_s", "Tb/s"),
        },
        notes=(
            *_folklore(radix, crown, made),
            *_spread(made),
            *_third_tier(endpoints, radix, made),
        ),
    )


def _ports(name: str, link_bytes_per_s: Quantity) -> Quantity:
    """Ports of a switch of the catalog at the rate of the endpoints, split where it can."""
    return switch_of(name).radix(8 * float(link_bytes_per_s.to("B/s")))


def _total_oversubscription(made: Fabric, core_oversubscription: Quantity) -> Quantity:
    """Both tiers' together: traffic that crosses the core has crossed the leaf's uplinks too."""
    through = choose(
        made.middle > 0,
        made.oversubscription * core_oversubscription,
        made.oversubscription,
        why="traffic crosses the core",
    )
    return through.named("oversubscription_made", "x")


def _folklore(radix: Quantity, crown: Quantity, made: Fabric) -> tuple[str, ...]:
    square = given(1) * radix * radix
    squared, half, ports = show(square), show(square / 2), show(given(1) * radix)
    return (
        f"Often told: two tiers of {ports}-port switches reach {squared} endpoints. That is R^2, "
        "the number of cables of the full fabric. At full bisection half of a leaf's ports go up, "
        f"and it ends at R^2/2 = {half}; {squared} would take top switches of twice the ports.",
        f"A leaf has {show(made.down_ports)} down; a top switch has {show(crown)}, one or more for "
        "each leaf or pod. Rates are one direction of a link.",
    )


def _third_tier(endpoints: Quantity, radix: Quantity, made: Fabric) -> tuple[str, ...]:
    """Where tiers are compared, for a fabric that takes a third; of a sweep, at any point."""
    if not somewhere(made.tiers > _TIERS[1]):
        return ()
    is_swept = any(getattr(one.value, "ndim", 0) for one in (endpoints, radix))
    here = "" if is_swept else f" --endpoints {endpoints.value:.0f} --radix {radix.value:.0f}"
    return (
        "What the third tier costs, against wider switches, rails and planes that do without: "
        f"ridgeline plan fabric-tiers{here}",
    )


def _spread(made: Fabric) -> tuple[str, ...]:
    """Whether each leaf can be wired to all spines alike, without which some halves see less."""
    if getattr(made.top.value, "ndim", 0) or getattr(made.up_ports.value, "ndim", 0):
        return ()  # a sweep: each point would have its own
    up, spines = round(made.up_ports.value), round(made.top.value)
    if made.tiers.value != _TIERS[1].value or up % spines == 0:
        return ()
    even = next((n for n in range(spines, up + 1) if up % n == 0), up)
    kept = Fraction(up // spines * spines, up)
    return (
        f"{up} uplinks do not divide over {spines} spines. With {up // spines} from each leaf "
        f"to each spine {float(kept):.1%} of the uplinks are used; {even} spines take all of "
        "them evenly.",
    )
