"""Nodes that must be there besides those at work: for repair, restarts and failures together."""

import math
from statistics import NormalDist
from typing import Any

from ridgeline.physics.law import law
from ridgeline.quantity import Number, Quantity, value_of
from ridgeline.units import parse_unit

# Above this mean the sum of the probabilities is replaced by the normal form with its skewness.
_SUMMED_MEAN = 500.0


@law
def failures_in(nodes: Number, failing_share: Number, period_s: Number, window_s: Number) -> Number:
    """Failures expected within a window; with the time away as the window, nodes away on average.

    Source: a constant rate; Little's law.
    """
    return nodes * failing_share / period_s * window_s


@law
def poisson_quantile(mean: Number, confidence: Number) -> Number:
    """The smallest count that a Poisson number stays within, with this confidence.

    Above a mean of 500 the normal form with a term for skewness is used.

    Source: Poisson distribution; Cornish and Fisher 1938.
    """
    bare_mean, bare_confidence = value_of(mean), value_of(confidence)
    if getattr(bare_mean, "ndim", 0) or getattr(bare_confidence, "ndim", 0):
        import numpy as np

        value: Any = np.vectorize(_quantile, otypes=[float])(bare_mean, bare_confidence)
    else:
        value = _quantile(bare_mean, bare_confidence)
    if isinstance(mean, Quantity) or isinstance(confidence, Quantity):
        return Quantity(value, parse_unit(""), op="poisson_quantile", args=(mean, confidence))
    return value


def _quantile(mean: float, confidence: float) -> float:
    if confidence >= 1:
        return math.inf
    if mean <= 0 or confidence <= 0:
        return 0.0
    if mean > _SUMMED_MEAN:
        z = NormalDist().inv_cdf(confidence)
        return float(max(0, math.ceil(mean + z * math.sqrt(mean) + (z * z - 1) / 6 - 0.5)))
    count, chance = 0, math.exp(-mean)
    total = chance
    while total < confidence and chance > 0:
        count += 1
        chance *= mean / count
        total += chance
    return float(count)


@law
def spare_nodes(repair_nodes: Number, restart_nodes: Number, together_nodes: Number) -> Number:
    """The three reserves added: each answers another question, and all may be asked at once.

    Source: sum; merged, a rack failure would meet a pool that is away for repair.
    """
    return repair_nodes + restart_nodes + together_nodes
