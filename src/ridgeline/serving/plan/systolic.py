"""How much of a systolic array works while rows stream through it."""

from ridgeline.physics.systolic import (
    array_utilization,
    fill_cycles,
    systolic_cycles,
    systolic_overlapped_cycles,
)
from ridgeline.quantity import Number
from ridgeline.topics import Answer, count, flag, topic


@topic("systolic-array", subject="serving")
def systolic_array(
    tile_rows: Number = count(128, "Rows of activations that stream through one tile."),
    array_width: Number = count(128, "Lanes of the square array; 128 or 256 in TPUs."),
    tiles: Number = count(1, "Tiles of weights, one after the other.", noun="tiles"),
    overlap: bool = flag(False, "Whether the next tile starts before the last one has drained."),
) -> Answer:
    """Cycles and utilization of a systolic array for a tile of so many rows.

    Loading the first weights is not counted. Without overlap each tile pays for fill and drain.
    """
    alone = systolic_cycles(tile_rows, array_width)
    fill = fill_cycles(array_width)
    if overlap:
        cycles = systolic_overlapped_cycles(tile_rows, array_width, tiles)
    else:
        cycles = (tiles * alone).named("one_by_one_cycles")
    busy = array_utilization(tile_rows, tiles, cycles)
    overlapped = array_utilization(
        tile_rows, tiles, systolic_overlapped_cycles(tile_rows, array_width, tiles)
    )
    return Answer(
        "{utilization} of the array works: {cycles} for {tiles} of {tile_rows} rows on a "
        "{array_width}-wide array",
        {
            "utilization": busy.named("utilization", "%"),
            "cycles": cycles.named("cycles", "cycles"),
            "fill_cycles": fill.named("fill", "cycles"),
            "drain_cycles": fill.named("drain", "cycles"),
            "idle_share": (1 - busy).named("idle_share", "%"),
            "overlapped_utilization": overlapped.named("overlapped_utilization", "%"),
        },
        notes=(
            "Two thirds idle holds for as many rows as the array is wide; a 256-wide array idles "
            "80 % on 128 rows, and tiles that overlap pay for fill and drain only once.",
            "Where tiles have fewer rows than the array is wide, overlapped ones wait for their "
            "weights, which take as many cycles to load as the array is wide.",
        ),
    )
