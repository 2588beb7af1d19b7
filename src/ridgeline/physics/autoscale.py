"""Replicas that a signal asks for, how fast they may come, and what a rolling update frees."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, floor, largest, smallest


@law
def replicas_asked(total: Number, target: Number, least: Number, most: Number) -> Number:
    """Replicas for a signal's total, so many each, within a floor and a ceiling.

    Source: the AverageValue rule of Kubernetes' autoscaler and KEDA: ceil(total / target).
    """
    wanted = ceil(total / target)
    return largest(floor=least, asked=smallest(ceiling=most, signal=wanted))


@law
def climb_s(first: Number, last: Number, pods_a_period: Number, period_s: Number) -> Number:
    """Time from one number of replicas to a higher one where each period may add only so many.

    Source: scaling policies of Kubernetes' autoscaler.
    """
    return ceil((last - first) / pods_a_period) * period_s


@law
def unavailable_pods(replicas: Number, share: Number = 0.25) -> Number:
    """Replicas that a rolling update may take down at once; a share is rounded down.

    Source: Kubernetes, maxUnavailable of a Deployment.
    """
    return floor(share * replicas)


@law
def surge_pods(replicas: Number, share: Number = 0.25) -> Number:
    """Replicas that a rolling update may have beyond the number wanted; a share is rounded up.

    Source: Kubernetes, maxSurge of a Deployment.
    """
    return ceil(share * replicas)
