"""Counts of a switched fabric: ports, switches, cables, reach, and what crosses the upper tiers.

A leaf gives part of its ports to endpoints (down) and the rest to the tier above (up). Ports are
counted at the speed of the endpoints; every link is one cable, whichever its direction.
Source of the model: Clos 1953; Leiserson 1985; Al-Fares, Loukissas and Vahdat 2008.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, floor, largest


@law
def leaf_down_ports(radix: Number, oversubscription: Number) -> Number:
    """Ports of a leaf for endpoints, so many for each port upward; at least one of each.

    Source: port arithmetic, R o / (1 + o), rounded down.
    """
    return largest(share=floor(radix * oversubscription / (1 + oversubscription)), one=1)


@law
def two_tier_endpoints(down_ports: Number, spine_radix: Number) -> Number:
    """The most endpoints in two tiers: a spine has one port for each leaf it reaches.

    With R ports everywhere and as many up as down this is R/2 x R = R^2/2, and not R^2: R^2 is the
    number of links of that fabric.

    Source: Al-Fares et al. 2008.
    """
    return down_ports * spine_radix


@law
def three_tier_endpoints(down_ports: Number, radix: Number, core_radix: Number) -> Number:
    """The most endpoints in three tiers: R/2 leaves in a pod, one core port for each pod; R^3/4.

    Source: Al-Fares et al. 2008.
    """
    return down_ports * floor(radix / 2) * core_radix


@law
def leaf_switches(endpoints: Number, down_ports: Number) -> Number:
    """Leaves that so many endpoints need.

    Source: port arithmetic.
    """
    return ceil(endpoints / down_ports)


@law
def spine_switches(leaves: Number, up_ports: Number, spine_radix: Number) -> Number:
    """Spines that take every uplink.

    Source: port arithmetic.
    """
    return ceil(leaves * up_ports / spine_radix)


@law
def aggregation_switches(leaves: Number, up_ports: Number, radix: Number) -> Number:
    """Middle tier of three: in each pod as many as take the uplinks of its leaves with R/2 ports.

    Source: Al-Fares et al. 2008; the last pod may be part-filled.
    """
    half = largest(half=floor(radix / 2), one=1)
    full = floor(leaves / half)
    rest = leaves - full * half
    return full * ceil(up_ports) + ceil(rest * up_ports / half)


@law
def core_links(leaves: Number, up_ports: Number, core_oversubscription: Number) -> Number:
    """Links between the middle tier and the core.

    Source: port arithmetic; a 2:1 core has half of them.
    """
    return ceil(leaves * up_ports / core_oversubscription)


@law
def core_switches(core_cables: Number, core_radix: Number) -> Number:
    """Core switches that take every link of the middle tier.

    Source: port arithmetic.
    """
    return ceil(core_cables / core_radix)


@law
def two_tier_switches(endpoints: Number, radix: Number, ports_per_endpoint: Number = 3.0) -> Number:
    """Switches of a full two-tier fabric of one radix: 2N/R leaves and N/R spines.

    Source: Al-Fares et al. 2008; two ports in the leaves and one in the spines for each endpoint.
    """
    return ports_per_endpoint * endpoints / radix


@law
def three_tier_switches(
    endpoints: Number, radix: Number, ports_per_endpoint: Number = 5.0
) -> Number:
    """Switches of a full three-tier fabric of one radix: 2N/R, 2N/R and N/R.

    Source: Al-Fares et al. 2008; two ports in leaves and middle, one in the core, an endpoint.
    """
    return ports_per_endpoint * endpoints / radix


@law
def full_bisection_links(endpoints: Number, tiers: Number) -> Number:
    """Cables of a fabric without oversubscription: one an endpoint in every tier.

    Source: Al-Fares et al. 2008.
    """
    return endpoints * tiers


@law
def switch_hops(tiers: Number) -> Number:
    """Switches on the longest path: up to the top tier and down again.

    Source: up-down routing.
    """
    return 2 * tiers - 1


@law
def transceiver_count(optical_links: Number, transceivers_per_link: Number = 2.0) -> Number:
    """Transceivers of optical links; a copper cable needs none.

    Source: one module at each end.
    """
    return optical_links * transceivers_per_link


@law
def injection_bytes_per_s(endpoints: Number, link_bytes_per_s: Number) -> Number:
    """What all endpoints together can send, one direction.

    Source: sum of the ports.
    """
    return endpoints * link_bytes_per_s


@law
def bisection_bytes_per_s(
    endpoints: Number, link_bytes_per_s: Number, oversubscription: Number, halves: Number = 2.0
) -> Number:
    """What one half of the endpoints can send to the other half at once, one direction.

    Source: max-flow of a Clos network; half the endpoints send, over 1/o of their rate.
    """
    return endpoints * link_bytes_per_s / (halves * largest(uplinks=oversubscription, access=1))


@law
def crossing_slowdown(crossing_share: Number, oversubscription: Number) -> Number:
    """How much longer traffic takes if so much of it crosses an oversubscribed tier.

    Links work at the same time, so the slower of the two counts: the endpoint's own link, or its
    share of the uplinks.

    Source: time = max(local, crossing x oversubscription).
    """
    return largest(access=1, uplinks=crossing_share * oversubscription)


@law
def same_leaf_pair_share(nodes: Number, down_ports: Number) -> Number:
    """Share of a rail's ordered pairs of nodes that hang on one leaf, leaves filled in order.

    Source: counting pairs.
    """
    full = floor(nodes / down_ports)
    rest = nodes - full * down_ports
    pairs = full * down_ports * (down_ports - 1) + rest * (rest - 1)
    return pairs / largest(all_pairs=nodes * (nodes - 1), one=1)


@law
def link_rate_ratio(inner_bytes_per_s: Number, outer_bytes_per_s: Number) -> Number:
    """How much faster the inner link is; both in one direction.

    Source: like with like; a sum of both directions over one direction is twice too much.
    """
    return inner_bytes_per_s / outer_bytes_per_s
