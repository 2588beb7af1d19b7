"""Low-rank adapters: what they add in weights, memory and reads.

A LoRA of rank r on a matrix of `inputs` x `outputs` adds r (inputs + outputs) values.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number


@law
def low_rank_params(rank: Number, inputs: Number, outputs: Number) -> Number:
    """Parameters of a low-rank update of one matrix: a tall and a wide factor.

    Source: Hu et al. 2021 (LoRA).
    """
    return rank * (inputs + outputs)


@law
def projection_adapter_params(
    rank: Number, hidden: Number, heads: Number, head_dim: Number
) -> Number:
    """Adapter of one projection of attention.

    Queries and the output have all heads, keys and values the KV heads.

    Source: Hu et al. 2021 (LoRA).
    """
    return low_rank_params(rank, hidden, heads * head_dim)


@law
def feed_forward_adapter_params(
    rank: Number, hidden: Number, intermediate: Number, matrices: Number = 3.0
) -> Number:
    """Adapters of one layer's gated feed-forward block: gate, up and down.

    Source: Hu et al. 2021 (LoRA); Shazeer 2020 (SwiGLU) for the three matrices.
    """
    return matrices * low_rank_params(rank, hidden, intermediate)
