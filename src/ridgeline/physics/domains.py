"""Domains of fast links: what stays inside, how long the rest takes, what a fault takes away."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, largest, smallest


@law
def inside_share(domain_gpus: Number, group_gpus: Number) -> Number:
    """Share of a device's traffic to its group, sent to all alike, that stays in its domain.

    Source: counting partners; the group fills domains one after the other.
    """
    near = smallest(domain=domain_gpus, group=group_gpus)
    return (near - 1) / largest(partners=group_gpus - 1, one=1)


@law
def domain_traffic_s(
    exchanged_bytes: Number, share_inside: Number, link_bytes_per_s: Number, nic_bytes_per_s: Number
) -> Number:
    """Time of an exchange of which a share stays inside: both kinds of link work at once.

    Source: time = max(inside, outside), rates of one direction.
    """
    return largest(
        inside=exchanged_bytes * share_inside / link_bytes_per_s,
        outside=exchanged_bytes * (1 - share_inside) / nic_bytes_per_s,
    )


@law
def domain_step_s(compute_time_s: Number, traffic_s: Number) -> Number:
    """A step whose exchange is not hidden behind arithmetic.

    Source: sum; with overlap it is between this and the longer of the two.
    """
    return compute_time_s + traffic_s


@law
def domain_failures_per_s(domain_gpus: Number, device_failure_s: Number) -> Number:
    """Failures of a domain: any of its devices takes all of them out of a synchronous job.

    Source: sum of constant rates.
    """
    return domain_gpus / device_failure_s


@law
def lost_gpu_s_per_s(gpus: Number, failures_per_s: Number, repair_s: Number) -> Number:
    """Devices of a job out on average, if a whole domain waits for each repair.

    Source: Little's law; each domain is out for rate x repair of the time, and never more than all.
    """
    return gpus * smallest(repairs=failures_per_s * repair_s, always=1)
