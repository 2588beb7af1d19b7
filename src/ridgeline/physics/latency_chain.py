"""The chain of latencies of one decode step that splitting over devices does not shorten."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number


@law
def collective_count(layers: Number, collectives_a_layer: Number = 2.0) -> Number:
    """Collectives of a step that wait for each other: two in each layer.

    Source: Megatron-LM, 2019 (after attention, after the block); GShard, 2020 (there and back).
    """
    return layers * collectives_a_layer


@law
def launches_s(layers: Number, kernels_a_layer: Number, launch_s: Number) -> Number:
    """Starting the kernels of a step one after the other, from the host or from a graph.

    Source: as many kernels run on each rank as on a single device.
    """
    return layers * kernels_a_layer * launch_s
