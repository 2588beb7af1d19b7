"""How long an upgrade in waves takes, and what it takes out of service."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, largest


@law
def upgrade_waves(nodes: Number, canary_nodes: Number, wave_nodes: Number) -> Number:
    """Waves of an upgrade: the canaries, then the rest in equal waves.

    Source: counting.
    """
    return 1 + ceil(largest(rest=nodes - canary_nodes, none=0) / wave_nodes)


@law
def away_gpu_s(nodes: Number, gpus_per_node: Number, wave_s: Number) -> Number:
    """Device time that an upgrade takes out of service: every node is away for one wave.

    Source: counting.
    """
    return nodes * gpus_per_node * wave_s
