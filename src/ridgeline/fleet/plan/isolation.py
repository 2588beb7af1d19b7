"""Where tenants may be cut apart, what the unit of allocation then is, and what that strands.

A tenant's trust says what it may share: a `team` may share a device, a `customer` a node, and a
`root` tenant, who owns the machine down to its firmware, only the fabric.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError
from ridgeline.fleet.plan.packing import pack
from ridgeline.quantity import Provenance, Quantity, given
from ridgeline.topics import Answer, an_accelerator, flag, text, topic
from ridgeline.units import parse_unit

TRUST = ("team", "customer", "root")
#: MIG profiles: compute slices of 7, and the memory slices of 8 that each takes.
PROFILES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
_SLICES, _MEMORY = 7, 8
#: Tenants that are packed exactly within a second or so.
MOST = 500
_ROUNDING = 1e-9
_EXAMPLE = "NAME:GPUS TRUST, such as search:0.5 team; bank:12 root"
_TENANT = re.compile(r"([A-Za-z][\w-]*)\s*:\s*([0-9.]+)\s+([a-z]+)")

RISKS = {
    "slice": "shares the device's power, clocks and PCIe; a driver fault reaches every slice",
    "GPU of a team": "shares the host's kernel, PCIe switches and power",
    "GPU of a customer": "shares PCIe switches, power and leaf uplinks; a host fault reaches all",
    "node": "shares leaf uplinks and in-network trees; wipe and attest firmware between tenants",
}


@dataclass(frozen=True)
class Features:
    """What the hardware and the fabric can partition."""

    per_node: int
    slices: bool
    nvlink: bool
    nic: bool


@dataclass
class Tenant:
    """One tenant: what it wants, what unit it is given, and where it comes to lie."""

    name: str
    gpus: Quantity
    trust: str
    unit: str = ""
    takes: float = 0.0
    nodes: list[int] = field(default_factory=list)
    beside: set[str] = field(default_factory=set)


@topic("tenant-isolation", subject="fleet")
def tenant_isolation(
    tenants: str = text(
        "search:0.5 team; ads:0.3 team; vision:3 team; audio:3 customer; video:5 customer; "
        "bank:12 root",
        "Tenants as NAME:GPUS TRUST; trust is team, customer or root.", other="bank:12 root",
    ),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    mig: bool = flag(True, "Devices may be cut into slices (MIG), where they can."),
    nvlink_partitions: bool = flag(True, "The fabric manager cuts NVLink into 1, 2, 4 and 8."),
    nic_functions: bool = flag(True, "NICs are shared as virtual functions (SR-IOV)."),
    fabric_partitions: bool = flag(True, "The network is partitioned (PKeys, or VRF and VXLAN)."),
) -> Answer:  # fmt: skip
    """Partition map of tenants, the unit each is allocated in, stranded GPUs, and residual risk."""
    per_node = accelerator.per_node
    sliced = mig and accelerator.data.get("mig_max_instances") == _SLICES
    features = Features(round(per_node.value), sliced, nvlink_partitions, nic_functions)
    them = read(tenants)
    nodes = place(them, features)
    demand = sum((one.gpus for one in them[1:]), them[0].gpus).named("demand", "GPUs")
    count = Quantity(
        float(nodes), parse_unit("nodes"), op="pack", args=tuple(one.gpus for one in them)
    ).named("nodes", "nodes")
    held = (count * per_node).named("held", "GPUs")
    # Whatever the unit rounds up is the tenant's, and what no tenant fills is free but split up.
    taken = Quantity(
        sum(one.takes for one in them), parse_unit("GPUs"), op="units of",
        args=tuple(one.gpus for one in them),
    ).named("taken", "GPUs")  # fmt: skip
    open_to = [one.name for one in them if one.trust != "team" and not fabric_partitions]
    units = {unit: [one.name for one in them if one.unit.startswith(unit)]
             for unit in ("slice", "GPU", "node")}  # fmt: skip
    said = "; ".join(f"{unit}: {', '.join(names)}" for unit, names in units.items() if names)
    return Answer(
        "{stranded_share} of {nodes} is stranded: {demand} are wanted of {held}",
        {
            "stranded_share": (1 - demand / held).named("stranded_share", "%"),
            "nodes": count,
            "demand": demand,
            "held": held,
            "rounded_up": (taken - demand).named("rounded_up", "GPUs"),
            "left_over": (held - taken).named("left_over", "GPUs"),
        },
        tuple(_row(one, fabric_partitions) for one in them),
        (
            f"Allocation unit: {said}.",
            *_warnings(open_to, mig, features, accelerator.name),
            *_NOTES,
        ),
        ok=not open_to,
    )


_NOTES = (
    "Teams, customers and root tenants never share a node. What no partition separates: PCIe "
    "bandwidth, power and heat of a node, NVLink below a partition, time slicing and MPS (no fault "
    "or memory isolation), shared leaf uplinks.",
    "The packing is exact: fewer nodes cannot hold these tenants under these rules.",
)


def read(written: str) -> list[Tenant]:
    """The tenants of a text; SpecError says which is wrong."""
    found: dict[str, Tenant] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", written))):
        match = _TENANT.fullmatch(part)
        if match is None or match[2].count(".") > 1:
            raise SpecError(f"{part!r} is no tenant", where="tenants", remedy=_EXAMPLE)
        name, trust = match[1], match[3]
        if trust not in TRUST:
            raise SpecError(
                f"{name}: {trust!r} is no trust", where="tenants", remedy=", ".join(TRUST)
            )
        if name in found:
            raise SpecError(f"{name} is there twice", where="tenants", remedy="another name")
        gpus = given(
            float(match[2]), "GPUs", name=f"{name.replace('-', '_')}_gpus",
            provenance=Provenance.ASSUMED, source="tenants",
        )  # fmt: skip
        if not 0 < gpus.value < math.inf:
            raise SpecError(f"{name} wants no GPUs", where="tenants", remedy="0.1 or more")
        found[name] = Tenant(name, gpus, trust)
    if len(found) > MOST:
        raise SpecError(f"{len(found)} tenants", where="tenants", remedy=f"at most {MOST}")
    if not found:
        raise SpecError("there are no tenants", where="tenants", remedy=_EXAMPLE)
    return list(found.values())


def place(tenants: Sequence[Tenant], features: Features) -> int:
    """Give each tenant its unit and nodes, as few as can be; the number of nodes."""
    for one in tenants:
        one.unit = unit_of(one, features)
    used = 0
    for pool in TRUST:
        used = _place_pool([one for one in tenants if one.trust == pool], features, used)
    return used


def unit_of(tenant: Tenant, features: Features) -> str:
    """The smallest unit that keeps a tenant apart as its trust demands."""
    gpus = float(tenant.gpus.value)
    if tenant.trust == "root":
        return "node"
    if tenant.trust == "team":
        return "slice" if features.slices and _profile(gpus) else "GPU of a team"
    apart = features.nic and (features.nvlink or gpus <= 1)
    return "GPU of a customer" if apart else "node"


def _profile(gpus: float) -> int:
    """Slices of the smallest profile that is so large; 0 where only a whole device is."""
    fitting = [slices for slices in PROFILES if gpus * _SLICES <= slices + _ROUNDING]
    return fitting[0] if fitting and fitting[0] < _SLICES else 0


def _rounded(tenant: Tenant, features: Features) -> int:
    """Whole GPUs that a tenant is given: of a node that is shared with strangers, a partition."""
    gpus = math.ceil(float(tenant.gpus.value) - _ROUNDING)
    if tenant.unit == "node":
        return -(-gpus // features.per_node) * features.per_node
    whole, rest = divmod(gpus, features.per_node)
    if tenant.unit == "GPU of a customer" and features.nvlink and rest:
        rest = min(features.per_node, 1 << (rest - 1).bit_length())
    return whole * features.per_node + rest


def _place_pool(tenants: Sequence[Tenant], features: Features, used: int) -> int:
    """Place tenants that may share nodes with each other; the number of nodes used by then."""
    parts: list[tuple[int, list[Tenant]]] = []
    sliced = [one for one in tenants if one.unit == "slice"]
    for one in sliced:
        one.takes = _profile(float(one.gpus.value)) / _SLICES
    sizes = [(profile := _profile(float(one.gpus.value)), PROFILES[profile]) for one in sliced]
    parts += [(1, [sliced[i] for i in gpu]) for gpu in pack(sizes, (_SLICES, _MEMORY))]
    for one in (one for one in tenants if one.unit != "slice"):
        gpus = _rounded(one, features)
        one.takes = float(gpus)
        whole, rest = divmod(gpus, features.per_node)
        one.nodes += range(used + 1, used + whole + 1)
        used += whole
        if rest:
            parts.append((rest, [one]))
    for box in pack([(gpus,) for gpus, _ in parts], (features.per_node,)):
        used += 1
        inside = [one for index in box for one in parts[index][1]]
        for one in inside:
            one.nodes.append(used)
            one.beside |= {other.name for other in inside} - {one.name}
    return used


def _row(tenant: Tenant, fabric_partitions: bool) -> dict[str, Quantity | str]:
    word = tenant.name.replace("-", "_")
    takes = Quantity(
        tenant.takes, parse_unit("GPUs"), name=f"{word}_takes", op="unit of", args=(tenant.gpus,)
    )
    risk = RISKS[tenant.unit]
    if not fabric_partitions and tenant.trust != "team":
        risk = f"others reach its NICs: the fabric is one; {risk}"
    return {
        "tenant": tenant.name,
        "trust": tenant.trust,
        "wants": tenant.gpus,
        "unit": tenant.unit.split()[0],
        "takes": takes,
        "nodes": _ranges(tenant.nodes),
        "beside": ", ".join(sorted(tenant.beside)),
        "residual risk": risk,
    }


def _ranges(nodes: Sequence[int]) -> str:
    """`1-3, 7` for 1, 2, 3 and 7."""
    found: list[list[int]] = []
    for node in nodes:
        if found and node == found[-1][-1] + 1:
            found[-1].append(node)
        else:
            found.append([node])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)


def _warnings(exposed: Sequence[str], mig: bool, features: Features, name: str) -> list[str]:
    told = []
    if exposed:
        told.append(f"Not isolated without a partitioned fabric: {', '.join(exposed)}.")
    if mig and not features.slices:
        told.append(f"{name} has no MIG: the smallest unit is a whole device.")
    return told
