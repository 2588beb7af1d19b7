"""Three networks of a cluster, each with switches and cables of its own.

The back end joins accelerators, the front end reaches storage and users, and the out-of-band
network is there when the other two are not. They share nodes, and nothing else.
"""

from dataclasses import dataclass

from ridgeline.fleet.plan.clos import Fabric, fabric
from ridgeline.physics.fabric import leaf_switches, transceiver_count
from ridgeline.physics.management import management_endpoints, paired_cables, paired_switches
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given
from ridgeline.topics import Answer, amount, count, topic

#: How a network is called in tables and cable lists.
BACK_END, FRONT_END, OUT_OF_BAND = "back end", "front end", "out of band"

_QUOTE = "assumed of this topic: put your quotation"
_SWITCH = "Quantum-2 QM9700, as in the catalog of parts"
_OPTIC = "400G DR4 module, as in the catalog of parts"


_COPPER = given(0, provenance=Provenance.DEFINED, source="copper cables have none")


@dataclass(frozen=True, slots=True)
class Management:
    """A management network: access switches, pairs that collect them, and two routers."""

    endpoints: Quantity
    access: Quantity
    collecting: Quantity
    routers: Quantity
    switches: Quantity
    cables: Quantity


@dataclass(frozen=True, slots=True)
class Networks:
    """The three networks of a cluster, counted."""

    nodes: Quantity
    storage_nodes: Quantity
    power_units: Quantity
    back: Fabric
    back_endpoints: Quantity
    front: Fabric
    front_endpoints: Quantity
    management: Management


def management(
    endpoints: Quantity, access_ports: Quantity, collecting_ports: Quantity
) -> Management:
    """The tree above so many managed ports."""
    access = leaf_switches(endpoints, access_ports).named("access_switches", "switches")
    collecting = paired_switches(access, collecting_ports).named("collecting_switches", "switches")
    routers = given(
        2, "switches", name="routers", provenance=Provenance.ASSUMED, source="two, on two feeds"
    )
    up = paired_cables(access) + paired_cables(collecting)
    return Management(
        endpoints,
        access,
        collecting,
        routers,
        (access + collecting + routers).named("management_switches", "switches"),
        (endpoints + up).named("management_cables", "cables"),
    )


def networks(
    nodes: Quantity,
    back_nics: Quantity,
    front_nics: Quantity,
    managed_ports: Quantity,
    storage_nodes: Quantity,
    storage_managed_ports: Quantity,
    nodes_per_pdu: Quantity,
    radix: Quantity,
    front_radix: Quantity,
    access_ports: Quantity,
    collecting_ports: Quantity,
    front_oversubscription: Quantity,
) -> Networks:
    """All three, from the nodes up; the third manages the switches of the other two."""
    back_endpoints = (nodes * back_nics).named("back_endpoints", "ports")
    front_endpoints = ((nodes + storage_nodes) * front_nics).named("front_endpoints", "ports")
    back = fabric(back_endpoints, radix, where="nodes")
    front = fabric(front_endpoints, front_radix, front_oversubscription, where="nodes")
    pdus = ceil((nodes + storage_nodes) / nodes_per_pdu).named("power_units")
    managed = management_endpoints(
        nodes,
        managed_ports,
        back.switches + front.switches,
        pdus,
        storage_nodes * storage_managed_ports,
    ).named("managed_endpoints", "ports")
    return Networks(
        nodes,
        storage_nodes,
        pdus,
        back,
        back_endpoints,
        front,
        front_endpoints,
        management(managed, access_ports, collecting_ports),
    )


@topic("cluster-networks", subject="network")
def cluster_networks(
    nodes: Number = count(64, "Nodes with accelerators.", noun="nodes"),
    back_nics: Number = count(8, "Cards of a node on the back end.", noun="ports"),
    front_nics: Number = count(2, "Cards of a node on the front end.", noun="ports"),
    managed_ports: Number = count(
        4, "Managed ports of a node: BMC, host, two of the DPU.", noun="ports"
    ),
    storage_nodes: Number = count(8, "Storage nodes, on the front end alike.", least=0),
    storage_managed_ports: Number = count(2, "Managed ports of a storage node.", noun="ports"),
    nodes_per_pdu: Number = count(2, "Nodes for each managed power unit."),
    radix: Number = count(64, "Ports of a back-end switch.", noun="ports", least=4),
    front_radix: Number = count(64, "Ports of a front-end switch.", noun="ports", least=4),
    front_oversubscription: Number = amount(
        "1", "x", "Ports of a front-end leaf downward for each upward.", least="1", most="32"
    ),
    access_ports: Number = count(48, "Ports of a management switch.", noun="ports"),
    collecting_ports: Number = count(32, "Ports of the management tier above.", noun="ports"),
    back_switch_usd: Number = amount("35000 USD", "USD", "A back-end switch.", source=_SWITCH),
    front_switch_usd: Number = amount("25000 USD", "USD", "A front-end switch.", source=_QUOTE),
    management_switch_usd: Number = amount(
        "3000 USD", "USD", "A management switch.", source=_QUOTE
    ),
    transceiver_usd: Number = amount("750 USD", "USD", "A back-end transceiver.", source=_OPTIC),
    front_transceiver_usd: Number = amount(
        "500 USD", "USD", "A front-end transceiver.", source=_QUOTE
    ),
    copper_usd: Number = amount("15 USD", "USD", "A management cable.", source=_QUOTE),
) -> Answer:
    """Ports, switches, cables and cost of a cluster's three networks."""
    made = networks(
        nodes,
        back_nics,
        front_nics,
        managed_ports,
        storage_nodes,
        storage_managed_ports,
        nodes_per_pdu,
        radix,
        front_radix,
        access_ports,
        collecting_ports,
        front_oversubscription,
    )
    tree = made.management
    copper = tree.switches * management_switch_usd + tree.cables * copper_usd
    rows = (
        _optical(BACK_END, made.back_endpoints, made.back, back_switch_usd, transceiver_usd),
        _optical(
            FRONT_END, made.front_endpoints, made.front, front_switch_usd, front_transceiver_usd
        ),
        _row(OUT_OF_BAND, tree.endpoints, tree.switches, tree.cables, _COPPER, copper),
    )
    total = {
        key: sum((row[key] for row in rows[1:]), start=rows[0][key])
        for key in ("ports", "switches", "cables", "cost")
    }
    return Answer(
        "{nodes} take {switches} and {cables} in three networks: {back_switches} on "
        "the back end, {front_switches} on the front end, {management_switches} out of band",
        {
            "switches": total["switches"].named("all_switches", "switches"),
            "cables": total["cables"].named("all_cables", "cables"),
            "cost_usd": total["cost"].named("cost_usd", "MUSD"),
            "ports": total["ports"].named("all_ports", "ports"),
            "back_switches": rows[0]["switches"],
            "front_switches": rows[1]["switches"],
            "management_switches": rows[2]["switches"],
            "ports_per_node": (total["ports"] / nodes).named("ports_per_node", "ports"),
        },
        table=tuple({"network": name, **row} for name, row in _named(rows)),
        notes=(
            "Counting only accelerators misses most ports: the front end and the management of "
            "every node, switch and power unit come on top.",
            "Two choices are hard to undo once racked: the ports of the leaves, and which rack a "
            "leaf stands in. `ridgeline plan cable-list` has every cable.",
        ),
    )


def _named(rows: tuple[dict[str, Quantity], ...]) -> list[tuple[str, dict[str, Quantity]]]:
    return list(zip((BACK_END, FRONT_END, OUT_OF_BAND), rows, strict=True))


def _optical(
    network: str, ports: Quantity, made: Fabric, switch_usd: Quantity, transceiver_usd: Quantity
) -> dict[str, Quantity]:
    modules = transceiver_count(made.cables)
    cost = made.switches * switch_usd + modules * transceiver_usd
    return _row(network, ports, made.switches, made.cables, modules, cost)


def _row(
    network: str,
    ports: Quantity,
    switches: Quantity,
    cables: Quantity,
    modules: Quantity,
    cost: Quantity,
) -> dict[str, Quantity]:
    key = network.replace(" ", "_")
    return {
        "ports": ports,
        "switches": switches.named(f"{key}_switches", "switches"),
        "cables": cables.named(f"{key}_cables", "cables"),
        "transceivers": modules.named(f"{key}_transceivers"),
        "cost": cost.named(f"{key}_cost_usd", "MUSD"),
    }
