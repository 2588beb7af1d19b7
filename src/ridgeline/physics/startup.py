"""Replicas that start and stop: what runs to zero saves, and who waits for it.

Requests arrive at random (Poisson). A replica stops after a quiet `keep_s` and takes `start_s` to
come back; requests that come meanwhile are held.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, exp, sqrt


@law
def quiet_share(rate_hz: Number, keep_s: Number) -> Number:
    """Chance that after a request nothing comes for so long.

    Source: gaps of a Poisson stream are exponential.
    """
    return exp(-1 * (rate_hz * keep_s))


@law
def stopped_share(rate_hz: Number, start_s: Number, keep_s: Number) -> Number:
    """Share of time in which nothing runs; the share of requests that wake a replica is the same.

    From one cold start to the next there are λS held requests and e^(λT) until a quiet period.

    Source: renewal argument; 1/λ of each cycle is stopped.
    """
    quiet = quiet_share(rate_hz, keep_s)
    return quiet / (1 + rate_hz * start_s * quiet)


@law
def held_s(rate_hz: Number, start_s: Number) -> Number:
    """Waiting that one cold start causes, over all requests that it holds.

    The one that wakes the replica waits for all of the start, those after it on average for half.

    Source: renewal argument.
    """
    return start_s + rate_hz * start_s * start_s / 2


@law
def zero_break_even_hz(
    price_usd_per_s: Number, start_usd: Number, wait_usd_per_s: Number, start_s: Number
) -> Number:
    """Rate of requests below which running to zero costs less, waiting priced in.

    Stopped time is worth price/λ a cycle; a cycle costs one start and its waiting. Their equality
    is a quadratic in λ in which the keep-alive time cancels.

    Source: renewal argument.
    """
    a = wait_usd_per_s * start_s * start_s / 2
    b = start_usd + wait_usd_per_s * start_s
    return 2 * price_usd_per_s / (b + sqrt(b**2 + 4 * a * price_usd_per_s))


@law
def held_at_most(rate_hz: Number, start_s: Number, deviations: Number = 3.09) -> Number:
    """Requests that a gateway has to hold during a start, all but once in a thousand starts.

    Source: Poisson count, normal approximation; 3.09 deviations are the 99.9th percentile.
    """
    mean = rate_hz * start_s
    return 1 + mean + deviations * sqrt(mean)
