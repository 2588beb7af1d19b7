"""Rail-optimised fabrics: card i of every node on the leaves of rail i, and who is how far away."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError
from ridgeline.fleet.plan.clos import somewhere
from ridgeline.physics.fabric import (
    injection_bytes_per_s,
    leaf_down_ports,
    leaf_switches,
    link_rate_ratio,
    same_leaf_pair_share,
    spine_switches,
    switch_hops,
    two_tier_endpoints,
)
from ridgeline.quantity import Number, Provenance, Quantity, given, largest
from ridgeline.show import show
from ridgeline.topics import Answer, amount, an_accelerator, count, topic


@topic("rail-fabric", subject="network")
def rail_fabric(
    nodes: Number = count(64, "Nodes to connect.", noun="nodes", least=2),
    rails: Number = count(8, "Network cards of a node, one a rail.", noun="ports"),
    radix: Number = count(64, "Ports of a switch at the cards' speed.", noun="ports", least=4),
    oversubscription: Number = amount(
        "1", "x", "Ports of a leaf downward for each upward.", least="1", most="63"
    ),
    nic_bytes_per_s: Number = amount("400 Gb/s", "Gb/s", "Rate of a card, one direction."),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
) -> Answer:
    """Leaves, spines and cables of a rail-optimised fabric, and the hops between pairs of cards."""
    endpoints = (nodes * rails).named("endpoints", "endpoints")
    down = leaf_down_ports(radix, oversubscription).named("down_ports", "ports")
    up = largest(rest=radix - down, one=1).named("up_ports", "ports")
    reach = two_tier_endpoints(down, radix).named("two_tier_most", "endpoints")
    a_rail = leaf_switches(nodes, down).named("leaves_per_rail", "leaves")
    leaves = (rails * a_rail).named("leaves", "leaves")
    _check_reach(leaves, radix, reach)
    spines = spine_switches(leaves, up, radix).named("spines", "spines")
    near = same_leaf_pair_share(nodes, down).named("same_leaf_pair_share", "%")
    crossing = (1 - near).named("same_rail_crossing_share", "%")
    inner = accelerator.link_bytes_per_s
    ratio = link_rate_ratio(inner, nic_bytes_per_s).named("link_rate_ratio", "x")
    return Answer(
        "{nodes} with {rails} each take {leaves}, {spines} and {cables}; "
        "{same_rail_crossing_share} of the pairs within a rail cross a spine",
        {
            "leaves": leaves,
            "spines": spines,
            "cables": (endpoints + leaves * up).named("cables", "cables"),
            "endpoints": endpoints,
            "leaves_per_rail": a_rail,
            "oversubscription_made": (down / up).named("oversubscription_made", "x"),
            "same_rail_crossing_share": crossing,
            "injection_bytes_per_s": injection_bytes_per_s(endpoints, nic_bytes_per_s).named(
                "injection_bytes_per_s", "Tb/s"
            ),
            "link_rate_ratio": ratio,
            "two_tier_most": reach,
        },
        table=_pairs(nodes, rails, near, crossing, inner, nic_bytes_per_s),
        notes=_notes(nodes, a_rail, down, inner, nic_bytes_per_s, ratio),
    )


def _check_reach(leaves: Quantity, radix: Quantity, reach: Quantity) -> None:
    if somewhere(leaves > radix):
        raise SpecError(
            f"{show(leaves)} are more than a spine of {show(radix)} reaches",
            where="nodes",
            remedy=f"two tiers end at {show(reach)}: a third tier, or one fabric for each rail",
        )


def _pairs(
    nodes: Quantity,
    rails: Quantity,
    near: Quantity,
    crossing: Quantity,
    inner: Quantity,
    outer: Quantity,
) -> tuple[dict[str, Quantity | str], ...]:
    """Classes of ordered pairs of cards: how common, how many switches between, at which rate."""
    zero, one, two = (
        given(n, provenance=Provenance.DEFINED, source="tiers that the path climbs")
        for n in (0, 1, 2)
    )
    cards = nodes * rails
    others = largest(others=cards - 1, one=1)
    own_node = ((rails - 1) / others).named("own_node_share", "%")
    own_rail = ((nodes - 1) / others).named("own_rail_share", "%")
    rest = (1 - own_node - own_rail).named("other_rail_share", "%")
    one_leaf, spine = switch_hops(one), switch_hops(two)
    return (
        _pair("same node, over its own links", own_node, zero, inner),
        _pair("same rail, same leaf", own_rail * near, one_leaf, outer),
        _pair("same rail, other leaf", own_rail * crossing, spine, outer),
        _pair("other rail, other node, over the spine", rest, spine, outer),
        _pair(
            "of these one hop away, if passed on inside the node to that rail",
            rest * near,
            one_leaf,
            outer,
        ),
    )


def _pair(pair: str, share: Quantity, hops: Quantity, rate: Quantity) -> dict[str, Quantity | str]:
    return {
        "pair": pair,
        "share": share.named("pair_share", "%"),
        "hops": hops.named("pair_hops", "hops"),
        "rate": rate.named("pair_bytes_per_s", "GB/s"),
    }


def _notes(
    nodes: Quantity,
    a_rail: Quantity,
    down: Quantity,
    inner: Quantity,
    outer: Quantity,
    ratio: Quantity,
) -> tuple[str, ...]:
    told = []
    if somewhere(a_rail > 1):
        told.append(
            "Often told: rail wiring keeps every collective one hop away. Only within one leaf: "
            f"{show(nodes)} of a rail hang on {show(a_rail)} of {show(down)}, and pairs on "
            "different leaves cross a spine."
        )
    both, card = (inner * 2).named("both_directions", "GB/s"), outer.named("one_direction", "GB/s")
    told.append(
        f"Often told: {show(both)} inside the node drop to {show(card)} of network, "
        f"{show((ratio * 2).named('', 'x'))}. The first is the sum of both directions, the second "
        f"is one: like with like it is {show(ratio)}."
    )
    return tuple(told)
