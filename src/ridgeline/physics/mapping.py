"""What each axis of a parallel layout sends, and how fast, by where its ranks sit.

Ranks are numbered node by node. An axis of degree d and stride s joins ranks that are s apart.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose, largest, smallest


@law
def members_in_node(stride: Number, degree: Number, node_gpus: Number) -> Number:
    """Ranks of one group that share a node.

    Holds where strides and nodes are multiples of each other.

    Source: ranks are numbered node by node.
    """
    room = largest(room=node_gpus / stride, alone=1)
    return smallest(group=degree, node=room)


@law
def collective_axis_s(
    sent_bytes: Number,
    degree: Number,
    members: Number,
    link_bytes_per_s: Number,
    nic_bytes_per_s: Number,
) -> Number:
    """Time of an axis' collectives: its link inside a node, else the cards of its members there.

    A ring through k members of a node leaves it on k cards at once.

    Source: NCCL's rings and channels; rates of one direction.
    """
    cards = smallest(link=link_bytes_per_s, cards=members * nic_bytes_per_s)
    rate = choose(members >= degree, link_bytes_per_s, cards, why="the group is within a node")
    return sent_bytes / rate


@law
def neighbour_axis_s(
    sent_bytes: Number,
    degree: Number,
    members: Number,
    link_bytes_per_s: Number,
    nic_bytes_per_s: Number,
) -> Number:
    """Time of sends to the next rank of an axis: some pair crosses unless all share a node.

    Source: the slowest pair sets the pace; rates of one direction.
    """
    rate = choose(
        members >= degree, link_bytes_per_s, nic_bytes_per_s, why="the group is within a node"
    )
    return sent_bytes / rate


@law
def repeated_bytes(
    once_bytes: Number, layers: Number, micro_batches: Number, passes: Number
) -> Number:
    """What an axis sends in a step that sends once in each layer, pass and micro-batch.

    Source: counting.
    """
    return once_bytes * layers * micro_batches * passes
