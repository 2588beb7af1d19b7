"""Counts of a management network: what is plugged into it, and the tree of small switches above."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, largest, log2


@law
def management_endpoints(
    nodes: Number,
    ports_per_node: Number,
    switches: Number,
    power_units: Number,
    cooling_units: Number,
) -> Number:
    """Ports that a management network serves: nodes are only a part of them.

    Source: counting; one port for each switch, power and cooling unit.
    """
    return nodes * ports_per_node + switches + power_units + cooling_units


@law
def paired_switches(below: Number, ports: Number, pair: Number = 2.0) -> Number:
    """Switches of the tier above, always two of a kind: each switch below has a cable to both.

    Source: no single switch may take a part of the management network away.
    """
    return pair * ceil(below / ports)


@law
def paired_cables(below: Number, pair: Number = 2.0) -> Number:
    """Cables to that tier.

    Source: one to each of the two.
    """
    return below * pair


@law
def prefix_length(
    addresses: Number, growth: Number, reserved: Number = 3.0, address_bits: Number = 32.0
) -> Number:
    """Length of the smallest IPv4 prefix with room for so many, grown, and those reserved.

    Reserved are the network, the broadcast and the gateway address.

    Source: RFC 4632.
    """
    room = largest(room=addresses * growth + reserved, one=1)
    return address_bits - ceil(log2(room))


@law
def prefix_addresses(length: Number, address_bits: Number = 32.0) -> Number:
    """Addresses of a prefix.

    Source: RFC 4632.
    """
    return 2.0 ** largest(host_bits=address_bits - length, none=0)
