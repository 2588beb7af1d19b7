"""Failures at a constant rate: gaps between them, and what checkpoints against them cost."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, sqrt


@law
def mean_gap_s(period_s: Number, failures: Number) -> Number:
    """Mean time between failures that were counted over a period.

    Source: maximum likelihood of a constant rate.
    """
    return period_s / failures


@law
def optimal_interval_s(write_s: Number, mtbf_s: Number, ways_of_loss: Number = 2.0) -> Number:
    """The interval between checkpoints that loses least, to first order: sqrt(2 d M).

    A failure loses half an interval on average, hence the 2. `write_s` is how long work stops.

    Source: Young 1974.
    """
    return sqrt(ways_of_loss * write_s * mtbf_s)


@law
def lost_share_at_optimum(write_s: Number, mtbf_s: Number, ways_of_loss: Number = 2.0) -> Number:
    """Share of the time that writes and lost work take at that interval; restarts come on top.

    Source: Young 1974: d/C + C/2M at C = sqrt(2 d M).
    """
    return sqrt(ways_of_loss * write_s / mtbf_s)
