"""How much compute a fixed amount of power holds, and what trimming each overhead gives."""

from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.accelerators import accelerator as by_name
from ridgeline.errors import SpecError, UnitError
from ridgeline.fleet.plan.power_peak import boards_share
from ridgeline.physics.power import compute_w, nodes_fed
from ridgeline.quantity import Number, Provenance, Quantity, given, holds
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, amount, an_accelerator, choice, text, topic
from ridgeline.units import parse_number, parse_unit

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Option:
    """A kind of node: its devices, how many of them, and what it draws at most."""

    device: Accelerator
    devices: Quantity
    node_w: Quantity


@dataclass(frozen=True)
class Site:
    """Where the power goes before it reaches a node, and the share of a node's that is spared."""

    site_w: Number
    pue: Number
    network_share: Number
    spared: Number | None = None


@topic("power-envelope", subject="fleet")
def power_envelope(
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    node_w: Number = amount(
        "10.2 kW", "kW", "Most that a node draws.", least="100 W", source="DGX H100 datasheet"
    ),
    site_w: Number = amount("1 MW", "W", "Power of the site.", least="1 kW"),
    pue: Number = amount("1.25", "", "Site over IT power.", least="1", most="3"),
    network_share: Number = amount(
        "0.05", "", "Share of IT power for network and storage.", most="0.9",
        interval=("0.05", "0.10"), source="network takes 5 to 10 % of IT power",
    ),
    distribution_share: Number = amount(
        "0.06", "", "Loss of UPS and transformers, of IT power; the rest of PUE is cooling.",
        most="1", source="double conversion and two transformers",
    ),
    fan_share: Number = amount(
        "0.1", "", "Share of a node's power for its fans.", most="0.5",
        interval=("0.05", "0.15"), source="5 to 15 % in air-cooled nodes",
    ),
    cut: Number = amount("0.5", "", "Share trimmed of one overhead at a time.", most="1"),
    others: str = text(
        "b200-sxm 14.3kW, mi300x 10kW, gb300 135kW/72",
        "Nodes to compare: accelerator, power, and /devices where a node has another number.",
        other="h200-sxm 10.2kW",
    ),
    dtype: str = choice("bf16", DTYPES, "Type of the FLOP/s."),
) -> Answer:  # fmt: skip
    """GPUs and FLOP/s that a power envelope holds, by option, and the gain of each overhead cut."""
    _distribution_fits(pue, distribution_share)
    boards = boards_share(accelerator, node_w)
    site = Site(site_w, pue, network_share)
    first = Option(accelerator, accelerator.per_node, node_w)
    cooling = (pue - 1 - distribution_share).named("cooling_share", note="of IT power")
    trimmed = {
        "cooling": Site(site_w, pue - cooling * cut, network_share),
        "distribution": Site(site_w, pue - distribution_share * cut, network_share),
        "network": Site(site_w, pue, network_share * (1 - cut)),
        "fans": Site(site_w, pue, network_share, fan_share * cut),
    }
    rows = tuple(_row(one, site, trimmed, dtype) for one in (first, *_others(others)))
    compute = compute_w(site_w, pue, network_share)
    gpus = _gpus(first, site).named("gpus", "GPUs")
    used = gpus / first.devices * node_w
    gains = {
        f"gain_{name}": (_gpus(first, after).named(f"gpus_{name}_cut") - gpus).named(
            f"gain_{name}", "GPUs", note=f"with {show(cut)} of it cut"
        )
        for name, after in trimmed.items()
    }
    return Answer(
        "{site_w} holds {gpus} on {nodes} of {node_w}: {flop_per_s}",
        {
            "gpus": gpus,
            "nodes": (gpus / first.devices).named("nodes", "nodes"),
            "flop_per_s": (gpus * accelerator.flop_per_s(dtype)).named("total_flop_per_s"),
            "compute": compute,
            **gains,
            "boards_share": boards,
            "unused": (compute - used).named("unused_w", "kW", note="less than one node"),
        },
        rows,
        _NOTES,
    )


_NOTES = (
    "Only whole nodes count: an overhead cut that frees less than a node gives nothing by itself.",
    "boards_share is what the boards draw of a node: 50 to 60 % is usual with air. A node power "
    "that was meant for another accelerator shows there.",
    "Nodes are counted at their most. `ridgeline plan power-cap` says what a cap costs and so how "
    "many more nodes the same feed could run.",
    "Fans count as IT power: where liquid replaces them the site holds more, though its PUE looks "
    "worse.",
)


def _gpus(option: Option, site: Site) -> Quantity:
    """Devices of the whole nodes that a site feeds."""
    draws = option.node_w
    if site.spared is not None:
        draws = (draws * (1 - site.spared)).named("trimmed_node_w", "kW")
    feed = compute_w(site.site_w, site.pue, site.network_share)
    gpus: Quantity = nodes_fed(feed, draws) * option.devices
    return gpus


def _row(
    option: Option, today: Site, trimmed: dict[str, Site], dtype: str
) -> dict[str, Quantity | str]:
    ours = option.device.id
    gpus = _gpus(option, today).named(f"{ours}.gpus", "GPUs")
    flop = gpus * option.device.flop_per_s(dtype)
    row: dict[str, Quantity | str] = {
        "option": option.device.name,
        "node power": option.node_w,
        "GPUs": gpus,
        "FLOP/s": flop.named(f"{ours}.total_flop_per_s"),
    }
    for name, after in trimmed.items():
        gain = _gpus(option, after).named(f"{ours}.gpus_{name}_cut") - gpus
        row[f"+{name}"] = gain.named(f"{ours}.gain_{name}", "GPUs")
    return row


def _others(written: str) -> list[Option]:
    """`b200-sxm 14.3kW, gb300 135kW/72` as options; empty text gives none."""
    return [_option(part.strip()) for part in written.split(",") if part.strip()]


def _option(part: str) -> Option:
    name, _, rest = part.partition(" ")
    power, _, devices = rest.partition("/")
    device = by_name(name)
    try:
        watts, unit = parse_number(power.strip(), parse_unit("W").dimension)
    except UnitError as error:
        raise UnitError(
            f"{part!r}: {error.problem}", where="others", remedy="b200-sxm 14.3kW"
        ) from error
    if devices and not devices.strip().isdigit():
        raise SpecError(f"{part!r}: {devices!r} is no number of devices", where="others",
                        remedy="gb300 135kW/72")  # fmt: skip
    count: Any = (
        given(int(devices), "GPUs", name=f"{name}.per_node", source="you") if devices
        else device.per_node
    )  # fmt: skip
    node_w = given(
        watts / unit.factor, unit.symbol, name=f"{name}.node_w", provenance=Provenance.ASSUMED,
        source="others",
    )  # fmt: skip
    return Option(device, count, node_w)


def _distribution_fits(pue: Number, distribution_share: Number) -> None:
    if not holds(distribution_share <= pue - 1 + _ROUNDING):
        raise SpecError(
            "losses are more than all overhead of this PUE", where="distribution-share",
            remedy="at most PUE - 1",
        )  # fmt: skip
