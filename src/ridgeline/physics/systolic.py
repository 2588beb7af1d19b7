"""A systolic array: how long rows take to stream through, and how much of it does work meanwhile.

Weight-stationary: an N x N array holds a tile of weights; each cycle a new row of activations
enters, skewed by one cycle a lane. The first product leaves the far corner after the fill, and the
last one needs the drain.

    cycle   0        N-1           M+N-2        M+2N-3
    fill    |---------|  all lanes busy  |  drain   |
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, largest


@law
def fill_cycles(array_width: Number) -> Number:
    """Cycles before the last lane gets its first activation.

    Source: Kung 1982, Why systolic architectures; one cycle of skew a lane.
    """
    return array_width - 1


@law
def systolic_cycles(tile_rows: Number, array_width: Number) -> Number:
    """Cycles of one tile on its own: its rows, one after the other, between fill and drain.

    Source: Kung 1982; M + 2N - 2, the load of the weights apart.
    """
    return tile_rows + 2 * fill_cycles(array_width)


@law
def systolic_overlapped_cycles(tile_rows: Number, array_width: Number, tiles: Number) -> Number:
    """Cycles of tiles that follow each other: fill and drain are paid once.

    The next weights are loaded in the shadow of the running tile, which takes as many cycles as
    the array is wide, so that shorter tiles wait for their weights.

    Source: Jouppi et al. 2017 (TPU v1, double-buffered weights).
    """
    period = largest(rows=tile_rows, weights=array_width)
    return (tiles - 1) * period + systolic_cycles(tile_rows, array_width)


@law
def array_utilization(tile_rows: Number, tiles: Number, cycles: Number) -> Number:
    """Share of all multiply-accumulate slots that did work: every lane works once for each row.

    Source: M N^2 products over cycles x N^2 slots.
    """
    return tile_rows * tiles / cycles
