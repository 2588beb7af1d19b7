"""Every cable of a cluster's three networks, by device and port at both ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counting

from ridgeline.fleet.plan.clos import Fabric
from ridgeline.fleet.plan.networks import (
    BACK_END,
    FRONT_END,
    OUT_OF_BAND,
    Management,
    Networks,
    networks,
)
from ridgeline.quantity import Number
from ridgeline.topics import Answer, amount, choice, count, topic


@dataclass(frozen=True, slots=True)
class Cable:
    """One cable: `a` is the lower end."""

    network: str
    a: str
    a_port: str
    b: str
    b_port: str


class _Ports:
    """The next free port of each device, so that no port is used twice."""

    def __init__(self) -> None:
        self._next: dict[str, Iterator[int]] = {}

    def take(self, device: str) -> str:
        return f"port-{next(self._next.setdefault(device, counting(1)))}"


def cable_list(
    made: Networks, back_nics: int, front_nics: int, managed_ports: int, storage_managed_ports: int
) -> list[Cable]:
    """All cables, in the order in which they are laid: the upper tiers last."""
    nodes = [f"node-{n:04}" for n in range(1, _whole(made.nodes) + 1)]
    storage = [f"storage-{n:03}" for n in range(1, _whole(made.storage_nodes) + 1)]
    # Card i of every node before card i + 1 of any: a rail's cards hang on neighbouring leaves.
    back = [(node, f"back-{card}") for card in range(1, back_nics + 1) for node in nodes]
    front = [
        (node, f"front-{card}") for node in (*nodes, *storage) for card in range(1, front_nics + 1)
    ]
    laid = [*_fabric_cables(BACK_END, "b", back, made.back)]
    laid += _fabric_cables(FRONT_END, "f", front, made.front)
    switches = dict.fromkeys(cable.b for cable in laid)
    managed = [(node, f"managed-{n}") for node in nodes for n in range(1, managed_ports + 1)]
    managed += [
        (one, f"managed-{n}") for one in storage for n in range(1, storage_managed_ports + 1)
    ]
    managed += [(switch, "managed-1") for switch in switches]
    managed += [(f"pdu-{n:04}", "managed-1") for n in range(1, _whole(made.power_units) + 1)]
    laid += _management_cables(managed, made.management)
    return laid


def _whole(number: Number) -> int:
    return round(number.value)


def _names(letter: str, tier: str, number: Number) -> list[str]:
    return [f"{letter}-{tier}-{n:03}" for n in range(1, _whole(number) + 1)]


def _fabric_cables(
    network: str, letter: str, ends: list[tuple[str, str]], made: Fabric
) -> Iterator[Cable]:
    """Endpoints fill leaves in order; each leaf's uplinks are dealt to the tier above in turn."""
    ports = _Ports()
    leaves, tops = _names(letter, "leaf", made.leaves), _names(letter, "top", made.top)
    down, up = _whole(made.down_ports), _whole(made.up_ports)
    for index, (device, port) in enumerate(ends):
        leaf = leaves[index // down] if len(leaves) > 1 else leaves[0]
        yield Cable(network, device, port, leaf, ports.take(leaf))
    if made.tiers.value == 1:
        return
    if made.tiers.value == 2:
        yield from _dealt(network, leaves, [up] * len(leaves), tops, ports)
        return
    half, middles = (down + up) // 2, _names(letter, "middle", made.middle)
    upward: list[int] = []
    for pod in range(0, len(leaves), half):
        below = leaves[pod : pod + half]
        first = len(upward)
        above = middles[first : first + -(-len(below) * up // half)]
        links = list(_dealt(network, below, [up] * len(below), above, ports))
        upward += [sum(cable.b == middle for cable in links) for middle in above]
        yield from links
    yield from _to_core(network, middles, upward, _whole(made.uplink_cables), tops, ports)


def _dealt(
    network: str, below: list[str], up: list[int], above: list[str], ports: _Ports
) -> Iterator[Cable]:
    at = 0
    for device, links in zip(below, up, strict=True):
        for _ in range(links):
            upper = above[at % len(above)]
            yield Cable(network, device, ports.take(device), upper, ports.take(upper))
            at += 1


def _to_core(
    network: str,
    middles: list[str],
    upward: list[int],
    uplinks: int,
    tops: list[str],
    ports: _Ports,
) -> Iterator[Cable]:
    """What is left of the uplinks after the pods goes to the core, dealt in turn."""
    left = uplinks - sum(upward)
    share = [left // len(middles) + (n < left % len(middles)) for n in range(len(middles))]
    yield from _dealt(network, middles, share, tops, ports)


def _management_cables(managed: list[tuple[str, str]], made: Management) -> Iterator[Cable]:
    ports = _Ports()
    access = _names("m", "access", made.access)
    collecting = _names("m", "collect", made.collecting)
    routers = _names("m", "router", made.routers)
    each = -(-len(managed) // len(access))
    for index, (device, port) in enumerate(managed):
        switch = access[index // each]
        yield Cable(OUT_OF_BAND, device, port, switch, ports.take(switch))
    for index, switch in enumerate(access):
        pair = index % (len(collecting) // 2) * 2
        for upper in collecting[pair : pair + 2]:
            yield Cable(OUT_OF_BAND, switch, ports.take(switch), upper, ports.take(upper))
    for switch in collecting:
        for router in routers:
            yield Cable(OUT_OF_BAND, switch, ports.take(switch), router, ports.take(router))


@topic("cable-list", subject="network")
def cables(
    nodes: Number = count(64, "Nodes with accelerators.", noun="nodes", most=4096),
    back_nics: Number = count(8, "Cards of a node on the back end.", noun="ports"),
    front_nics: Number = count(2, "Cards of a node on the front end.", noun="ports"),
    managed_ports: Number = count(4, "Managed ports of a node.", noun="ports", most=64),
    storage_nodes: Number = count(8, "Storage nodes, on the front end alike.", least=0, most=4096),
    storage_managed_ports: Number = count(
        2, "Managed ports of a storage node.", noun="ports", most=64
    ),
    nodes_per_pdu: Number = count(2, "Nodes for each managed power unit."),
    radix: Number = count(64, "Ports of a back-end switch.", noun="ports", least=4),
    front_radix: Number = count(64, "Ports of a front-end switch.", noun="ports", least=4),
    front_oversubscription: Number = amount(
        "1", "x", "Ports of a front-end leaf downward for each upward.", least="1", most="32"
    ),
    access_ports: Number = count(48, "Ports of a management switch.", noun="ports", most=1024),
    collecting_ports: Number = count(
        32, "Ports of the management tier above.", noun="ports", most=1024
    ),
    network: str = choice(
        "all", ("all", BACK_END, FRONT_END, OUT_OF_BAND), "Whose cables are listed."
    ),
    shown: Number = count(12, "Cables to list.", noun="cables", least=0),
) -> Answer:
    """Every cable of the three networks, by device and port at both ends."""
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
    laid = cable_list(
        made,
        _whole(back_nics),
        _whole(front_nics),
        _whole(managed_ports),
        _whole(storage_managed_ports),
    )
    listed = [cable for cable in laid if network in ("all", cable.network)]
    total = made.back.cables + made.front.cables + made.management.cables
    return Answer(
        "{cables} for {nodes}, of which the table has the first {shown}",
        {
            "cables": total.named("all_cables", "cables"),
            "back_cables": made.back.cables.named("back_end_cables"),
            "front_cables": made.front.cables.named("front_end_cables"),
            "management_cables": made.management.cables,
        },
        table=tuple(
            {
                "network": cable.network,
                "from": f"{cable.a} {cable.a_port}",
                "to": f"{cable.b} {cable.b_port}",
            }
            for cable in listed[: _whole(shown)]
        ),
    )
