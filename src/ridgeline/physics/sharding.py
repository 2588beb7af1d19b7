"""What splitting a layer over chips sends, for the layouts that inference uses.

Source of the layouts: Pope et al. 2022, Efficiently scaling transformer inference.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, log


@law
def tensor_parallel_degree(devices: Number) -> Number:
    """The next degree that engines split weights in: a power of two.

    Source: Megatron-LM; heads, hidden and vocabulary are multiples of powers of two.
    """
    return 2 ** ceil(log(devices) / log(2))


@law
def one_dimension_bytes(
    tokens: Number, hidden: Number, value_bytes: Number, one_tokens: Number = 1.0
) -> Number:
    """A block whose weights are split along one axis: gather the activations, scatter the sums.

    Both move a whole row of activations for each token, however many chips there are.

    Source: Pope et al. 2022 (1D weight-stationary).
    """
    return 2 * (tokens / one_tokens) * hidden * value_bytes


@law
def two_dimension_bytes(
    tokens: Number,
    hidden: Number,
    intermediate: Number,
    mesh_x: Number,
    mesh_y: Number,
    value_bytes: Number,
    one_tokens: Number = 1.0,
) -> Number:
    """A block whose weights are tiles of a mesh: hidden along x, the inner width along y.

    Source: Pope et al. 2022 (2D weight-stationary): 2 T (E/X + F/Y).
    """
    widths = hidden / mesh_x + intermediate / mesh_y
    return 2 * (tokens / one_tokens) * widths * value_bytes


@law
def gathered_weights_bytes(block_params: Number, value_bytes: Number) -> Number:
    """A block whose weights come to the tokens: every chip receives all of them.

    Source: Pope et al. 2022 (weight-gathered).
    """
    return block_params * value_bytes
