"""Who is in flight and how a backlog grows: laws of flow that hold for any distribution."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number


@law
def requests_in_flight(arrivals_per_s: Number, residence_s: Number) -> Number:
    """Requests that are in a system at once, on average: they come at a rate and stay for a time.

    Source: Little 1961.
    """
    return arrivals_per_s * residence_s


@law
def backlog_requests(arrivals_per_s: Number, overload: Number, period_s: Number) -> Number:
    """Requests that wait after a period in which this share of the arrivals found no room.

    Source: arrivals less departures.
    """
    return arrivals_per_s * overload * period_s


@law
def patience_s(allowed_wait_s: Number, overload: Number) -> Number:
    """How long an overload lasts before the queue is as long as the wait that is allowed.

    The queue, in seconds of work, grows by the overload's share of each second.

    Source: arrivals less departures.
    """
    return allowed_wait_s / overload
