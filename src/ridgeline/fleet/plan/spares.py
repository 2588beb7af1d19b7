"""Spare nodes: three reserves that answer three questions, and are added."""

from dataclasses import dataclass

from ridgeline.physics.spares import failures_in, poisson_quantile, spare_nodes
from ridgeline.quantity import Number, Quantity
from ridgeline.show import show
from ridgeline.topics import Answer, amount, count, topic

_MONTH = "30 day"


@dataclass(frozen=True, slots=True)
class Reserves:
    """The three reserves, and what they were counted from."""

    mean_in_repair: Quantity
    failures_at_once: Quantity
    repair: Quantity
    restart: Quantity
    together: Quantity
    total: Quantity


def reserves(
    nodes: Quantity,
    failing_share: Quantity,
    period_s: Quantity,
    turnaround_s: Quantity,
    replacement_s: Quantity,
    canaries: Quantity,
    together: Quantity,
    confidence: Quantity,
) -> Reserves:
    """Repair pipeline, restart pool and correlated buffer of a fleet."""
    mean = failures_in(nodes, failing_share, period_s, turnaround_s)
    mean = mean.named("mean_in_repair", "nodes")
    repair = poisson_quantile(mean, confidence).named("repair_nodes", "nodes")
    at_once = failures_in(nodes, failing_share, period_s, replacement_s).named("failures_at_once")
    pool = (poisson_quantile(at_once, confidence) + canaries).named("restart_nodes", "nodes")
    buffer = (together * 1).named("together_nodes", "nodes")
    total = spare_nodes(repair, pool, buffer).named("spare_nodes", "nodes")
    return Reserves(mean, at_once, repair, pool, buffer, total)


@topic("spare-nodes", subject="fleet")
def spares(
    nodes: Number = count(1280, "Nodes of the fleet.", noun="nodes"),
    failing_share: Number = amount(
        "1 %", "%", "Share of the nodes that fail in a period.", interval=("0.5 %", "3 %")
    ),
    period_s: Number = amount(_MONTH, "day", "That period.", least="1 h"),
    turnaround_s: Number = amount(
        "10 day",
        "day",
        "Time from failure until a repaired node is back.",
        interval=("3 day", "21 day"),
    ),
    replacement_s: Number = amount(
        "4 h", "h", "Time until a spare has taken the place of a failed node."
    ),
    canaries: Number = count(1, "Nodes of the restart pool that are kept under test.", least=0),
    together: Number = count(
        32, "Nodes of the largest unit that fails at once (rack, leaf, cooling unit).", least=0
    ),
    confidence: Number = amount("95 %", "%", "Confidence of both counts.", most="99.9999 %"),
) -> Answer:
    """How many spare nodes a fleet needs: repair pipeline, restart pool and correlated buffer."""
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
    return Answer(
        "{spare_nodes} for {nodes}: {repair_nodes} for {mean_in_repair} in repair on average, "
        "{restart_nodes} to restart on, {together_nodes} for a unit that fails at once",
        {
            "spare_nodes": found.total,
            "repair_nodes": found.repair,
            "restart_nodes": found.restart,
            "together_nodes": found.together,
            "mean_in_repair": found.mean_in_repair,
            "failures_at_once": found.failures_at_once,
            "spare_share": (found.total / nodes).named("spare_share", "%"),
        },
        table=(
            _reserve(
                "repair pipeline", found.repair, "nodes away for repair, at the confidence asked"
            ),
            _reserve(
                "restart pool",
                found.restart,
                "ready nodes for jobs to restart on, canaries included",
            ),
            _reserve("correlated buffer", found.together, "the largest unit that fails at once"),
        ),
        notes=(
            f"Nodes in repair vary like a Poisson number around {show(found.mean_in_repair)}: a "
            "reserve of the mean is too small a good part of the time.",
            "The reserves are added and not merged: when a rack fails, the nodes away for repair "
            "do not come back, and the next single failure still needs a node.",
        ),
    )


def _reserve(name: str, nodes: Quantity, why: str) -> dict[str, Quantity | str]:
    return {"reserve": name, "nodes": nodes, "why": why}
