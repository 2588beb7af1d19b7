"""What a layout sends in a step, and how much of it is seen beside the arithmetic."""

from ridgeline.physics.parallel import (
    all_gather_bytes,
    all_reduce_bytes,
    exchange_bytes_per_token,
    exposed_s,
    message_bytes,
    visited_nodes,
)
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.physics.size import kv_bytes_per_token_per_rank
from ridgeline.quantity import Number, ceil, choose, largest, smallest, value_of
from ridgeline.training.plan.shape import PASSES, Layout, Machine, Work, named

#: Joining two partial results of attention reads both and writes one, 32 bits a value.
_MERGED_BYTES = 12.0


def _latency(machine: Machine, ranks: Number) -> Number:
    """What each message within a group takes before its bytes do; nothing on a single rank."""
    apart = choose(
        ranks <= value_of(machine.domain),
        machine.link_latency_s,
        machine.nic_latency_s,
        why="the group lies in one domain",
    )
    return choose(ranks > 1, apart, 0.0 * apart, why="there is a group")


def _rate(machine: Machine, ranks: Number) -> Number:
    """What a rank can send within a group: over the links where the group fits their domain."""
    return choose(
        ranks <= value_of(machine.domain),
        machine.link_bytes_per_s,
        machine.nic_bytes_per_s,
        why="the group lies in one domain",
    )


def _shared_rate(machine: Machine, stride: Number, ranks: Number, name: str) -> Number:
    """What a rank can send of a gather or reduction over ranks that lie `stride` apart.

    All members of a group within a node want the same bytes, so that the network brings them once
    and each member's own NIC carries its part: rings cross the network as often as a node has
    members. With tensor parallelism over the whole node there is one, with none all of them.
    """
    members = largest(one=1, inside=value_of(machine.domain) / stride)
    across = smallest(links=machine.link_bytes_per_s, networks=machine.nic_bytes_per_s * members)
    inside = stride * ranks <= value_of(machine.domain)
    why = "the group lies in one domain"
    return named(choose(inside, machine.link_bytes_per_s, across, why=why), name)


def tensor_s(work: Work, machine: Machine, layout: Layout, tokens: Number) -> Number:
    """Four all-reduces a layer (two each way; two more where it is computed again)."""
    message = message_bytes(tokens, work.block.hidden)
    one = all_reduce_bytes(message, layout.tensor) / _rate(machine, layout.tensor)
    seen = one * (1 - machine.overlap) + _latency(machine, layout.tensor)
    return named((4.0 + 2.0 * layout.again) * seen, "layer_tensor_s")


def context_s(work: Work, machine: Machine, layout: Layout, tokens: Number) -> Number:
    """Keys and values go round the context ring behind the scores; backward twice as much."""
    block = kv_bytes_per_token_per_rank(
        1.0, work.block.kv_heads, work.block.head_dim, machine.value_bytes, layout.tensor
    )
    hops = layout.context - 1
    ways = layout.tensor * layout.context
    scores_flop = PASSES * work.attention_flop / work.layers * layout.micro_batch / ways
    behind = compute_s(scores_flop, machine.wide_flop_per_s, machine.attention_share)
    group = layout.tensor * layout.context
    hop = block * tokens / _rate(machine, group) + _latency(machine, group)
    seen = exposed_s(PASSES * hops * hop, behind * hops / layout.context)
    width = work.block.heads * work.block.head_dim / layout.tensor
    merged = PASSES * hops * message_bytes(tokens, width, _MERGED_BYTES)
    return named(seen + read_s(merged, machine.memory_bytes_per_s), "layer_context_s")


def expert_s(work: Work, machine: Machine, layout: Layout, tokens: Number) -> Number:
    """Dispatch and combine of a layer's tokens, both ways, to the nodes their experts lie on."""
    nodes = ceil(layout.expert * layout.tensor / value_of(machine.per_node))
    far = visited_nodes(work.top_k, nodes, nodes)
    inside = layout.expert * layout.tensor <= value_of(machine.domain)
    goes = choose(inside, work.top_k, far, why="experts lie in one domain")
    apart = (layout.expert - 1) / layout.expert
    a_token = exchange_bytes_per_token(
        goes * apart, work.block.hidden, machine.value_bytes, machine.value_bytes
    )
    moved = 2.0 * a_token * work.moe_share * tokens / layout.tensor
    group = layout.expert * layout.tensor
    waits = choose(layout.expert > 1, 4.0, 0.0, why="experts are split") * work.moe_share
    spent = moved / _rate(machine, group) * (1 - machine.overlap)
    return named(spent + waits * _latency(machine, group), "layer_expert_s")


def hop_s(work: Work, machine: Machine, layout: Layout, tokens: Number) -> Number:
    """Activations to the next stage, and gradients back; each rank sends its part."""
    moved = message_bytes(tokens, work.block.hidden) / layout.tensor
    hop = 2.0 * (moved / machine.nic_bytes_per_s + machine.nic_latency_s)
    crosses = choose(layout.pipeline > 1, 1.0, 0.0, why="there is another stage")
    return named(crosses * hop, "hop_s")


def data_s(
    machine: Machine,
    layout: Layout,
    dense: Number,
    routed: Number,
    stage: Number,
    micro_batches: Number,
) -> Number:
    """Gradients and weights between replicas, less what hides behind micro-batches."""
    two, three = layout.zero >= 2, layout.zero >= 3
    reduces = choose(two, micro_batches, 1.0, why="gradients are reduced each micro-batch")
    gathers = choose(three, 2.0 * micro_batches, 1.0, why="weights are gathered both ways")
    rounds = choose(two, micro_batches, 1.0, why="hidden behind each micro-batch")
    holders = layout.replicas / layout.expert
    shared = all_gather_bytes(dense * machine.value_bytes, layout.replicas)
    apart = all_gather_bytes(routed * machine.value_bytes, holders)
    once = shared / _shared_rate(machine, layout.tensor, layout.replicas, "replica_rate")
    once = once + apart / _shared_rate(
        machine, layout.tensor * layout.expert, holders, "expert_replica_rate"
    )
    sent = gathers + reduces * machine.gradient_bytes / machine.value_bytes
    spent = named(once * sent, "data_traffic_s")
    return named(exposed_s(spent, machine.data_overlap * rounds * stage), "data_s")
