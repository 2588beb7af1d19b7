"""Sessions on hosts: how many fit by memory, how many by cores."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, floor, largest


@law
def hosts_by_memory(
    sessions: Number, guest_bytes: Number, overhead_bytes: Number, usable_bytes: Number
) -> Number:
    """Hosts that hold so many sessions, each with its guest and the overhead of its sandbox.

    A session larger than a host is counted as one a host.

    Source: whole sessions on each host.
    """
    fitting = floor(usable_bytes / (guest_bytes + overhead_bytes))
    return ceil(sessions / largest(one=1, fitting=fitting))


@law
def hosts_by_cores(sessions: Number, cores_per_session: Number, cores_per_host: Number) -> Number:
    """Hosts whose cores run so many sessions, each with the cores that it takes on average.

    Source: cores in use over cores of a host.
    """
    return ceil(sessions * cores_per_session / cores_per_host)
