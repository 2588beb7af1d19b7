"""A rack-wide NVLink domain against nodes of eight: step time, one fault's reach, and the hall."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.fleet.plan.clos import somewhere
from ridgeline.physics.bill import nodes_for
from ridgeline.physics.domains import (
    domain_failures_per_s,
    domain_step_s,
    domain_traffic_s,
    inside_share,
    lost_gpu_s_per_s,
)
from ridgeline.physics.fabric import link_rate_ratio
from ridgeline.quantity import Number, Quantity, largest
from ridgeline.show import show
from ridgeline.topics import Answer, amount, an_accelerator, count, topic

_NODE = "DGX B200: 14.3 kW at most, four a rack"
_RACK = "published racks of 72: 115 to 120 kW to liquid, 120 to 142 kW in all"
_NVL = 72.0
_LLAMA = "Llama 3, 2024: 419 interruptions in 54 days on 16,384 devices"


@dataclass(frozen=True, slots=True)
class _Design:
    """One of the two designs with the hall's limits."""

    step_s: Quantity
    radius: Quantity
    failures_per_s: Quantity
    lost: Quantity
    racks: Quantity
    rack_w: Quantity
    power_gap_w: Quantity
    mass_gap_kg: Quantity


@topic("scale-up-domain", subject="network")
def scale_up_domain(
    rack: Accelerator = an_accelerator("gb200", "Accelerator of the rack-scale domain."),
    node: Accelerator = an_accelerator("b200-sxm", "Accelerator of the small nodes."),
    gpus: Number = count(576, "Devices of the job.", noun="GPUs", least=2),
    group: Number = count(
        64, "Devices that exchange with each other (expert or tensor group).", noun="GPUs", least=2
    ),
    exchanged_bytes: Number = amount(
        "4 GB", "GB", "Bytes that a device sends in its group, each step, to all alike."
    ),
    compute_s: Number = amount("50 ms", "ms", "Time of a step without the network."),
    nic_bytes_per_s: Number = amount(
        "400 Gb/s", "Gb/s", "Network for each device, one direction.", least="1 Gb/s"
    ),
    device_failure_s: Number = amount(
        "50700 h",
        "h",
        "Device-hours for each interruption.",
        least="1 h",
        interval=("20000 h", "100000 h"),
        source=_LLAMA,
    ),
    repair_s: Number = amount("4 h", "h", "Time until a failed domain works again."),
    rack_w: Number = amount(
        "132 kW", "kW", "Power of a rack-scale rack.", interval=("120 kW", "142 kW"), source=_RACK
    ),
    rack_gpus: Number = count(72, "Devices in a rack-scale rack.", noun="GPUs"),
    rack_kg: Number = amount("1360 kg", "kg", "Its mass.", source="published: 1.36 t a rack"),
    node_rack_w: Number = amount("57 kW", "kW", "Power of a rack of small nodes.", source=_NODE),
    node_rack_gpus: Number = count(32, "Devices in a rack of small nodes.", noun="GPUs"),
    node_rack_kg: Number = amount("900 kg", "kg", "Its mass.", source="assumed of this topic"),
    hall_rack_w: Number = amount(
        "40 kW", "kW", "What the hall can feed and cool at one rack.", source="air ends at 30-40 kW"
    ),
    hall_rack_kg: Number = amount(
        "1200 kg", "kg", "What the floor carries at one rack.", source="assumed of this topic"
    ),
) -> Answer:
    """A rack-scale NVLink domain against eight-device nodes: step time, blast radius, facility."""

    def design(
        kind: Accelerator, power_w: Quantity, mass_kg: Quantity, in_rack: Quantity
    ) -> _Design:
        inside = inside_share(kind.domain, group).named(f"{kind.id}_inside_share", "%")
        traffic = domain_traffic_s(exchanged_bytes, inside, kind.link_bytes_per_s, nic_bytes_per_s)
        failures = domain_failures_per_s(kind.domain, device_failure_s)
        racks = nodes_for(gpus, in_rack).named("racks", "racks")
        return _Design(
            domain_step_s(compute_s, traffic).named(f"{kind.id}_step_s", "ms"),
            kind.domain,
            failures,
            lost_gpu_s_per_s(gpus, failures, repair_s).named("lost_gpus", "GPUs"),
            racks,
            power_w,
            largest(over=power_w - hall_rack_w, none=0).named("power_gap_w", "kW"),
            largest(over=mass_kg - hall_rack_kg, none=0).named("mass_gap_kg", "kg"),
        )

    big = design(rack, rack_w, rack_kg, rack_gpus)
    small = design(node, node_rack_w, node_rack_kg, node_rack_gpus)
    ratio = link_rate_ratio(rack.link_bytes_per_s, nic_bytes_per_s).named("link_rate_ratio", "x")
    return Answer(
        "a fault in a domain of {rack} takes {blast_radius_ratio} as many devices as in one of "
        "{node}; inside it links are {link_rate_ratio} the network's rate, and a step takes "
        "{rack_step} against {node_step}",
        {
            "blast_radius_ratio": (big.radius / small.radius).named("blast_radius_ratio", "x"),
            "link_rate_ratio": ratio,
            "rack_step": big.step_s,
            "node_step": small.step_s,
            "step_gain": (small.step_s / big.step_s).named("step_gain", "x"),
            "power_gap_w": big.power_gap_w,
            "mass_gap_kg": big.mass_gap_kg,
            "lost_gpus": big.lost,
        },
        table=(_row(rack, big), _row(node, small)),
        notes=_notes(rack, ratio, nic_bytes_per_s, big),
    )


def _row(kind: Accelerator, made: _Design) -> dict[str, Quantity | str]:
    return {
        "design": kind.name,
        "step": made.step_s,
        "a fault takes": made.radius,
        "fails every": (1 / made.failures_per_s).named("domain_failure_s", "h"),
        "out on average": made.lost,
        "racks": made.racks,
        "of a rack": made.rack_w,
        "hall lacks": made.power_gap_w,
        "floor lacks": made.mass_gap_kg,
    }


def _notes(rack: Accelerator, ratio: Quantity, nic: Quantity, big: _Design) -> tuple[str, ...]:
    card = nic.named("card_bytes_per_s", "GB/s")
    told = [
        f"Per direction: {show(rack.link_bytes_per_s)} within the domain against {show(card)} a "
        f"card, {show(ratio)}. At twice the card's rate it is half of that; a headline that sums "
        "both directions of one link only doubles it.",
    ]
    if somewhere(rack.domain.value == _NVL):
        told.append(
            "A domain of 72 is run with 64 to 68 at work and the rest in reserve: partitions step "
            "by a tray of four, and the job then outlives a tray."
        )
    if somewhere(big.power_gap_w > 0):
        told.append(
            f"The hall lacks {show(big.power_gap_w)} at each such rack: above about 40 kW it takes "
            "liquid cooling, and feeds to match."
        )
    return tuple(told)
