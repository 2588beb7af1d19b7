"""The bill of material of a training cluster: from its work to nodes, network, power and spares."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.fleet.plan.clos import Fabric, fabric, somewhere
from ridgeline.fleet.plan.spares import Reserves, reserves
from ridgeline.physics.bill import (
    cluster_w,
    gpus_for_deadline,
    landed_bytes_per_s,
    nodes_for,
    pods_for,
    state_file_bytes,
    storage_nodes_for,
)
from ridgeline.physics.fabric import transceiver_count
from ridgeline.physics.size import training_flop
from ridgeline.quantity import Number, Quantity, floor, largest
from ridgeline.show import show
from ridgeline.topics import Answer, a_model, amount, an_accelerator, count, topic

_DGX = "DGX H100: 10.2 kW at most"
_SWITCH = "Quantum-2 QM9700: 747 W and its optics, 1,720 W at most"


@topic("cluster-bill", subject="fleet")
def cluster_bill(
    model: Model = a_model("llama-3.1-405b", "Model to train."),
    training_tokens: Number = amount("15.6 Ttokens", "tokens", "Tokens to train on.", least="1"),
    deadline_s: Number = amount("120 day", "day", "Time to do it in.", least="1 h"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    mfu: Number = amount(
        "0.40",
        "",
        "Model FLOP utilisation.",
        least="0.01",
        most="1",
        interval=("0.33", "0.45"),
        source="Llama 3, 2024: 38 to 43 % on 8,192 to 16,384 devices",
    ),
    goodput_share: Number = amount(
        "0.93",
        "",
        "Share of the time that training runs.",
        least="0.01",
        most="1",
        interval=("0.85", "0.97"),
        source="Llama 3, 2024: over 90 %",
    ),
    node_gpus: Number = count(8, "Devices of a node.", noun="GPUs"),
    pod_gpus: Number = count(1024, "Devices of a pod: R/2 leaves of R/2 ports.", noun="GPUs"),
    radix: Number = count(64, "Ports of a back-end switch.", noun="ports", least=4),
    core_oversubscription: Number = amount(
        "1", "x", "Middle tier's ports downward for each to the core.", least="1", most="64"
    ),
    node_w: Number = amount("10.2 kW", "kW", "Power of a node.", source=_DGX),
    switch_w: Number = amount(
        "1.4 kW", "kW", "Power of a back-end switch.", interval=("1 kW", "1.7 kW"), source=_SWITCH
    ),
    pue: Number = amount("1.25", "", "Site power over IT power.", least="1", most="3"),
    kept_bytes: Number = amount("12 B", "B", "Checkpointed bytes of a parameter.", least="1 B"),
    within_s: Number = amount("60 s", "s", "Time in which a checkpoint has to land.", least="1 s"),
    checkpoints: Number = count(20, "Checkpoints that are kept."),
    server_bytes_per_s: Number = amount(
        "25 GB/s", "GB/s", "What a storage server writes.", least="1 MB/s"
    ),
    server_bytes: Number = amount("300 TB", "TB", "What it holds.", least="1 TB"),
    failing_share: Number = amount(
        "1 %", "%", "Share of the nodes that fail in a period.", interval=("0.5 %", "3 %")
    ),
    turnaround_s: Number = amount(
        "10 day", "day", "Time from failure until a repaired node is back.", least="1 h"
    ),
    replacement_s: Number = amount("4 h", "h", "Time to put a spare in a failed node's place."),
    period_s: Number = amount("30 day", "day", "Period of that share.", least="1 h"),
    canaries: Number = count(1, "Nodes of the restart pool that are kept under test.", least=0),
    confidence: Number = amount("95 %", "%", "Confidence of the reserves.", most="99.9999 %"),
    together: Number = count(32, "Nodes that fail at once with a leaf or rack.", least=0),
) -> Answer:
    """Nodes, pods, switches, storage, megawatts and spares of a training cluster, with reasons.

    Pods are built whole, so some nodes are left over. The three reserves of spares take those
    first; what is missing has to be bought, or the job gets fewer nodes.
    """
    work = training_flop(model.active_params, training_tokens).named("training_flop")
    needed = gpus_for_deadline(work, accelerator.flop_per_s("bf16"), mfu, goodput_share, deadline_s)
    needed = needed.named("gpus_needed", "GPUs")
    asked = nodes_for(needed, node_gpus).named("nodes_needed", "nodes")
    pods = pods_for(asked, node_gpus, pod_gpus).named("pods", "pods")
    nodes = floor(pods * pod_gpus / node_gpus).named("nodes", "nodes")
    gpus = (nodes * node_gpus).named("gpus", "GPUs")
    net = fabric(gpus, radix, core_oversubscription=core_oversubscription, where="deadline")
    state = state_file_bytes(model.params, kept_bytes).named("checkpoint_bytes", "TB")
    rate = landed_bytes_per_s(state, within_s).named("checkpoint_bytes_per_s", "GB/s")
    servers = storage_nodes_for(rate, server_bytes_per_s, state * checkpoints, server_bytes)
    it = cluster_w(nodes, node_w, net.switches, switch_w).named("it_w", "MW")
    found = reserves(
        nodes,
        failing_share,
        period_s,
        turnaround_s,
        replacement_s,
        canaries,
        together,
        confidence,
    )
    spare, over = found.total, (nodes - asked).named("nodes_over", "nodes")
    short = largest(short=spare - over, none=0).named("spares_short", "nodes")
    site = (it * pue).named("site_w", "MW")
    return Answer(
        "{nodes} in {pods}, {switches}, {checkpoint_bytes_per_s} of storage, {it_w} of IT load "
        "and {site_w} from the utility",
        {
            "nodes": nodes,
            "pods": pods,
            "gpus": gpus,
            "switches": net.switches,
            "checkpoint_bytes_per_s": rate,
            "it_w": it,
            "site_w": site,
            "spare_nodes": spare,
            "spares_short": short,
            "storage_servers": servers.named("storage_servers"),
            "transceivers": transceiver_count(net.cables).named("transceivers"),
        },
        table=(
            _item("devices needed", needed, f"{show(work)} in {show(deadline_s)}"),
            _item("nodes needed", asked, f"{show(node_gpus)} each"),
            _item("pods", pods, f"built whole, {show(pod_gpus)} each"),
            _item("nodes", nodes, f"{show(over)} more than needed"),
            *_network(net, radix, core_oversubscription),
            _item("checkpoint", state, f"{show(kept_bytes)} for each of {show(model.params)}"),
            _item("storage rate", rate, f"to land in {show(within_s)}"),
            _item(
                "storage servers", servers, f"{show(checkpoints)} checkpoints kept, one may be out"
            ),
            _item("IT power", it, f"{show(node_w)} a node, {show(switch_w)} a switch"),
            _item("site power", site, f"PUE {show(pue)}"),
            *_spares(found, over, short, confidence),
        ),
        notes=_notes(net, core_oversubscription),
    )


def _item(name: str, number: Quantity, why: str) -> dict[str, Quantity | str]:
    return {"item": name, "number": number, "reason": why}


def _network(
    net: Fabric, radix: Quantity, core_oversubscription: Quantity
) -> tuple[dict[str, Quantity | str], ...]:
    half = f"{show(net.down_ports)} down, {show(net.up_ports)} up"
    return (
        _item("leaf switches", net.leaves, half),
        _item("middle switches", net.middle, f"{show(radix)}, none with two tiers"),
        _item("core switches", net.top, f"oversubscription {show(core_oversubscription)}"),
        _item("switches", net.switches, f"{show(net.tiers)} tiers of {show(radix)} a switch"),
        _item("cables", net.cables, "one an endpoint and tier at full bisection"),
    )


def _spares(
    found: Reserves, over: Quantity, short: Quantity, confidence: Quantity
) -> tuple[dict[str, Quantity | str], ...]:
    return (
        _item(
            "spares: repair",
            found.repair,
            f"{show(found.mean_in_repair)} on average, {show(confidence)} of the time no more",
        ),
        _item("spares: restart", found.restart, "ready to take over, canaries included"),
        _item("spares: together", found.together, "fail at once with a leaf or rack"),
        _item("spares to add", short, f"{show(over)} left over in whole pods serve first"),
    )


def _notes(net: Fabric, core_oversubscription: Quantity) -> tuple[str, ...]:
    told = [
        "Switches are those of the back end: front end, storage and management have their own "
        "(`ridgeline plan cluster-networks`).",
        "IT power is not the utility's feed: cooling and losses come on top, by the PUE.",
    ]
    if somewhere(net.middle > 0) and not somewhere(core_oversubscription > 1):
        told.insert(
            0,
            f"Often told an eighth lower, 700 for 10,240 devices: at full bisection all but "
            f"the core take 2N/R, here {show(net.leaves)}, {show(net.middle)} in the middle "
            f"and {show(net.top)} in the core. A 2:1 core (--core-oversubscription 2) halves the "
            "last.",
        )
    return tuple(told)
