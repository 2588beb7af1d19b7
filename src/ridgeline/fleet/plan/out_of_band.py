"""The network that is there when the others are not: endpoints, switches, addresses, access."""

from ridgeline.fleet.plan.networks import management
from ridgeline.physics.management import management_endpoints, prefix_addresses, prefix_length
from ridgeline.quantity import Number, Quantity, ceil
from ridgeline.topics import Answer, amount, choice, count, topic

#: Where people come from, and how.
_ACCESS = {
    "bastion": ("the bastion", "with a person's own key and a second factor, recorded"),
    "vpn": ("the site's VPN", "with a person's own certificate, recorded"),
    "console": ("consoles on site", "and from nowhere outside"),
}
#: What may reach a class of port besides people.
_MACHINES = {
    "host": "provisioning, monitoring",
    "power unit": "facility controllers",
    "cooling unit": "facility controllers",
}


@topic("out-of-band", subject="network")
def out_of_band(
    nodes: Number = count(1280, "Nodes with accelerators.", noun="nodes"),
    bmc_ports: Number = count(1, "Ports of a node's BMC.", noun="ports"),
    host_ports: Number = count(1, "Management ports of a node's host.", noun="ports", least=0),
    dpu_ports: Number = count(2, "Management ports of a node's DPUs.", noun="ports", least=0),
    switches: Number = count(800, "Switches of the other networks.", noun="switches", least=0),
    nodes_per_pdu: Number = count(2, "Nodes for each managed power unit."),
    cdus: Number = count(12, "Cooling units.", noun="CDUs", least=0),
    access_ports: Number = count(48, "Ports of a management switch.", noun="ports"),
    collecting_ports: Number = count(32, "Ports of the tier above.", noun="ports"),
    growth: Number = amount("2", "x", "Addresses kept for each in use.", least="1"),
    access: str = choice("bastion", tuple(_ACCESS), "Who may reach a managed port."),
) -> Answer:
    """How many ports a management network serves, its switches, addresses and who may use it."""
    pdus = ceil(nodes / nodes_per_pdu).named("power_units")
    a_node = (bmc_ports + host_ports + dpu_ports).named("ports_per_node", "ports")
    endpoints = management_endpoints(nodes, a_node, switches, pdus, cdus)
    tree = management(endpoints.named("endpoints", "endpoints"), access_ports, collecting_ports)
    classes = _classes(
        {
            "BMC": nodes * bmc_ports,
            "host": nodes * host_ports,
            "DPU": nodes * dpu_ports,
            "switch": switches,
            "power unit": pdus,
            "cooling unit": cdus,
        },
        growth,
        access,
    )
    rooms = [prefix_addresses(row["prefix"]) for row in classes]
    room = sum(rooms[1:], start=rooms[0]).named("subnet_addresses")
    prefix = prefix_length(room, 1, reserved=0).named("prefix_length")
    return Answer(
        "{nodes} give {endpoints} to manage, {endpoints_per_node} a node, on {switches_needed} of "
        "their own within a /{prefix_length}",
        {
            "endpoints": tree.endpoints,
            "endpoints_per_node": (tree.endpoints / nodes).named("endpoints_per_node"),
            "switches_needed": tree.switches,
            "access_switches": tree.access,
            "collecting_switches": tree.collecting,
            "routers": tree.routers,
            "cables": tree.cables,
            "prefix_length": prefix,
        },
        table=classes,
        notes=(
            f"People come from {_ACCESS[access][0]} {_ACCESS[access][1]}. Nothing comes from a "
            "tenant's host, a job, or the other two networks.",
            "No switch, router or cable here carries traffic of another network: of those only "
            "the management ports of switches are plugged in, as things that are managed.",
            "Feed it from other breakers and route it over another uplink than what it is there "
            "to rescue. Whoever holds its credentials can switch the site off.",
        ),
    )


def _classes(
    counted: dict[str, Quantity], growth: Quantity, access: str
) -> tuple[dict[str, Quantity | str], ...]:
    """One subnet for each class of port, since each has its own rule of access."""
    return tuple(
        {
            "class": kind,
            "ports": ports.named(f"{kind.replace(' ', '_').lower()}_endpoints", "ports"),
            "prefix": prefix_length(ports, growth).named("class_prefix_length"),
            "may connect": f"{_MACHINES.get(kind, 'the fleet controllers')}; {_ACCESS[access][0]}",
        }
        for kind, ports in counted.items()
    )
