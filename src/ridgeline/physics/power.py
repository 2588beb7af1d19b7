"""Power: what a cap costs in clock and throughput, and what a feed holds."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, choose, floor, largest, smallest


@law
def clock_share(
    power_share: Number, static_share: Number = 0.0, voltage_floor: Number = 0.5
) -> Number:
    """Clock that is left at a share of a device's power: a cube root, since voltage falls too.

    Leakage and idle draw (`static_share`) do not fall with the clock, so all of the cut comes out
    of the rest. Below `voltage_floor`, a share of the clock, voltage falls no more: power is then
    linear in the clock.

    Source: dynamic power C V^2 f with V in proportion to f.
    """
    dynamic = largest(none=0, dynamic=(power_share - static_share) / (1 - static_share))
    cubic, linear = dynamic ** (1 / 3), dynamic / voltage_floor**2
    return choose(dynamic >= voltage_floor**3, cubic, linear, why="voltage falling")


@law
def capped_throughput_share(
    clock: Number, intensity_flop_per_byte: Number, ridge_flop_per_byte: Number
) -> Number:
    """Throughput that a lower clock leaves: memory keeps its pace, arithmetic slows.

    Source: roofline model, Williams et al. 2009, with a ceiling in proportion to the clock.
    """
    memory = intensity_flop_per_byte / ridge_flop_per_byte
    return smallest(clock=clock, memory=memory) / smallest(full_clock=1, memory=memory)


@law
def compute_w(site_w: Number, pue: Number, network_share: Number) -> Number:
    """Power for compute nodes out of what a site draws.

    Source: PUE, The Green Grid 2007: site over IT power.
    """
    return site_w / pue * (1 - network_share)


@law
def nodes_fed(feed_w: Number, node_w: Number) -> Number:
    """Whole nodes that so much power runs.

    Source: each node is counted at its most.
    """
    return floor(feed_w / node_w)


@law
def buffer_j(excess_w: Number, high_s: Number, efficiency: Number = 0.9) -> Number:
    """Storage that takes a peak off a feed: what is above, as long as it lasts.

    Source: energy balance over one peak; efficiency of a battery and its converter, assumed.
    """
    return excess_w * high_s / efficiency


@law
def command_all_s(nodes: Number, nodes_at_once: Number = 32.0, command_s: Number = 2.0) -> Number:
    """Time to give every node one command, so many at once.

    Source: a power limit set over the management network, a fan-out of 32 shells.
    """
    return ceil(nodes / nodes_at_once) * command_s
