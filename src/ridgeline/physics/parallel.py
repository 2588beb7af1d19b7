"""What collectives move: bytes that one rank sends, as multiples of the message.

Times are bytes over a link's rate in one direction; latencies are counted by whoever has them.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose, largest


@law
def all_gather_bytes(message_bytes: Number, ranks: Number) -> Number:
    """Bytes a rank sends to gather (or reduce-scatter) a message over a ring: (n-1)/n of it.

    Source: ring collectives, Patarasuk and Yuan 2009.
    """
    return message_bytes * (ranks - 1) / ranks


@law
def all_reduce_bytes(message_bytes: Number, ranks: Number, passes: Number = 2.0) -> Number:
    """Bytes a rank sends to reduce a message over a ring: a reduce-scatter and a gather.

    Source: ring collectives, Patarasuk and Yuan 2009: 2 (n-1)/n of the message.
    """
    return passes * message_bytes * (ranks - 1) / ranks


@law
def exposed_s(communication_s: Number, hidden_by_s: Number) -> Number:
    """Communication that outlasts the arithmetic beside it.

    Source: overlap of two engines; the longer one is seen.
    """
    return largest(hidden=0, exposed=communication_s - hidden_by_s)


@law
def message_bytes(
    rank_tokens: Number, hidden: Number, value_bytes_per_token: Number = 2.0
) -> Number:
    """Activations of so many tokens on their way between ranks, 16 bits a value.

    Source: Megatron-LM, 2019: the residual stream is what is sent.
    """
    return rank_tokens * hidden * value_bytes_per_token


@law
def exchange_bytes_per_token(
    destinations: Number,
    hidden: Number,
    dispatch_value_bytes: Number,
    combine_value_bytes: Number,
    visits_per_token: Number = 1.0,
) -> Number:
    """Bytes that cross the network for one token of a mixture layer: there and back.

    A token goes once to each node it visits, in the dispatch type, and comes back in another.

    Source: DeepSeek-V3, 2024, section 3.2.2 (node-limited routing).
    """
    values = hidden * (dispatch_value_bytes + combine_value_bytes)
    return destinations * values * visits_per_token


@law
def visited_nodes(top_k: Number, nodes: Number, node_limit: Number) -> Number:
    """Nodes that a token's experts can lie on: no more than experts, nodes, or the router's limit.

    Source: DeepSeek-V3, 2024: at most four nodes a token.
    """
    few = choose(top_k < nodes, top_k, nodes, why="fewer experts than nodes")
    return choose(few < node_limit, few, node_limit, why="below the router's limit")
