"""Counts of a whole cluster: from the work it has to do to devices, nodes, pods, storage, power."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, largest


@law
def gpus_for_deadline(
    work_flop: Number,
    peak_flop_per_s: Number,
    mfu: Number,
    goodput_share: Number,
    deadline_s: Number,
) -> Number:
    """Devices that finish so much training in time.

    Source: work over rate; model FLOP utilisation while it runs, and the share of time it runs.
    """
    return ceil(work_flop / (peak_flop_per_s * mfu * goodput_share * deadline_s))


@law
def nodes_for(gpus: Number, node_gpus: Number) -> Number:
    """Nodes, or racks, that hold so many devices.

    Source: counting.
    """
    return ceil(gpus / node_gpus)


@law
def pods_for(nodes: Number, node_gpus: Number, pod_gpus: Number) -> Number:
    """Pods that hold so many nodes; a part of one is built whole.

    Source: counting.
    """
    return ceil(nodes * node_gpus / pod_gpus)


@law
def landed_bytes_per_s(file_bytes: Number, within_s: Number) -> Number:
    """Rate at which a checkpoint has to be written to be safe in time.

    Source: bytes over time.
    """
    return file_bytes / within_s


@law
def state_file_bytes(params: Number, kept_bytes: Number) -> Number:
    """Bytes of a checkpoint: weights and optimizer state of every parameter.

    Source: 4 bytes each of master weight and two moments are 12; 2 more with 16-bit weights.
    """
    return params * kept_bytes


@law
def storage_nodes_for(
    rate_bytes_per_s: Number,
    server_bytes_per_s: Number,
    whole_bytes: Number,
    server_bytes: Number,
    spare: Number = 1.0,
) -> Number:
    """Storage servers for both the rate and the capacity, and one that may be out.

    Source: counting.
    """
    by_rate = ceil(rate_bytes_per_s / server_bytes_per_s)
    by_room = ceil(whole_bytes / server_bytes)
    return largest(rate=by_rate, capacity=by_room) + spare


@law
def cluster_w(nodes: Number, node_w: Number, switches: Number, switch_w: Number) -> Number:
    """Power of nodes and switches at full load.

    Source: sum of the nameplates.
    """
    return nodes * node_w + switches * switch_w
