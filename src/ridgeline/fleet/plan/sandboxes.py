"""Hosts for sandboxed sessions at each level of isolation, and what binds: memory or CPU."""

from dataclasses import dataclass

from ridgeline.errors import SpecError
from ridgeline.physics.hosts import hosts_by_cores, hosts_by_memory
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given, holds, largest
from ridgeline.topics import Answer, amount, choice, count, topic


@dataclass(frozen=True)
class Level:
    """A way to isolate a session: what it costs in memory and start, and whether GPUs go in."""

    overhead: str
    start: str
    gpu: bool
    trusts: str
    provenance: Provenance
    source: str


LEVELS = {
    "container": Level(
        "10 MB", "0.3 s", True, "the host's kernel: own code only", Provenance.ASSUMED,
        "a shim for each container; start without pulling its image",
    ),
    "gvisor": Level(
        "30 MB", "0.5 s", True, "a kernel in user space: strangers' code, slow system calls",
        Provenance.ASSUMED, "sentry and gofer of one sandbox; GPUs by nvproxy for listed drivers",
    ),
    "microvm": Level(
        "5 MiB", "125 ms", False, "a virtual machine: strangers' code, no GPU",
        Provenance.PUBLISHED,
        "Firecracker SPECIFICATION.md: at most 5 MiB and 125 ms to user space",
    ),
    "vm": Level(
        "131 MB", "5 s", True, "a virtual machine: strangers' code, GPU passed through",
        Provenance.PUBLISHED, "QEMU's overhead: Firecracker, NSDI 2020 (recalled); start assumed",
    ),
}  # fmt: skip

#: Where a level takes no GPU, sessions that need one run as this.
GPU_LEVEL = "vm"


@dataclass(frozen=True)
class Host:
    """What a host has for sessions, and what one session takes of it on average."""

    usable_bytes: Number
    cores: Number
    guest_bytes: Number
    session_cores: Number


@topic("sandbox-density", subject="fleet")
def sandbox_density(
    sessions: Number = count(50_000, "Sessions that are open at once.", noun="sessions"),
    isolation: str = choice("microvm", tuple(LEVELS), "How a session is isolated."),
    guest_bytes: Number = amount("256 MB", "MB", "Memory of one session.", least="1 MB"),
    host_bytes: Number = amount("1 TB", "TB", "Memory of a host.", least="1 GB"),
    memory_share: Number = amount("0.9", "", "Share of it for sessions.", least="0.1", most="1"),
    active_share: Number = amount("0.05", "", "Share of sessions that compute at once.", most="1",
                                  interval=("0.02", "0.2")),
    session_cores: Number = amount("1", "", "Cores that an active session takes.", least="0.01"),
    host_cores: Number = count(192, "Cores of a host.", noun="cores"),
    cores_share: Number = amount("0.8", "", "Share of the cores for sessions.", least="0.1",
                                 most="1"),
    gpu_share: Number = amount("0", "", "Share of sessions that need a GPU.", most="1"),
    sessions_per_gpu: Number = count(7, "Sessions on one GPU: 7 MIG slices.", noun="sessions"),
    host_gpus: Number = count(8, "GPUs of a host that has any.", noun="GPUs"),
) -> Answer:  # fmt: skip
    """Hosts for sandboxed sessions by isolation level, start time, and what binds."""
    usable = (host_bytes * memory_share).named("usable_bytes", "GB")
    _fits(guest_bytes, usable)
    plain = (sessions * (1 - gpu_share)).named("plain_sessions", "sessions")
    on_gpu = (sessions * gpu_share).named("gpu_sessions", "sessions")
    host = Host(usable, host_cores * cores_share, guest_bytes, session_cores * active_share)
    memory, cores = _memory(plain, isolation, host), _cores(plain, host)
    pool = largest(memory=memory, cpu=cores).named("plain_hosts", "hosts")
    # A session with a GPU needs a level that passes one in, on hosts that have some.
    tier = isolation if LEVELS[isolation].gpu else GPU_LEVEL
    by_gpu = ceil(on_gpu / (sessions_per_gpu * host_gpus))
    gpu_hosts = largest(gpu=by_gpu, memory=_memory(on_gpu, tier, host), cpu=_cores(on_gpu, host))
    gpu_hosts = gpu_hosts.named("gpu_hosts", "hosts")
    return Answer(
        "{sessions} take {hosts}: as {isolation} {hosts_by_memory} by memory and {hosts_by_cpu} "
        "by CPU, and {gpu_hosts} with GPUs",
        {
            "hosts": (pool + gpu_hosts).named("hosts", "hosts"),
            "hosts_by_memory": memory.named("hosts_by_memory", "hosts"),
            "hosts_by_cpu": cores.named("hosts_by_cpu", "hosts"),
            "gpu_hosts": gpu_hosts,
            "start": _start(isolation),
        },
        tuple(_row(name, plain, host) for name in LEVELS),
        (_tiers(isolation, tier), *_NOTES),
    )


_NOTES = (
    "Memory is what is counted first, and CPU what usually binds: at a few percent of sessions "
    "active the cores run out before the memory does.",
    "Idle memory can be ballooned, shared or swapped; cores in use cannot.",
)


def _tiers(isolation: str, tier: str) -> str:
    """Which level for which trust."""
    return (
        f"By tier: own code in containers, strangers' code in microvms; here {isolation}, and "
        f"{tier} for what needs a GPU. gvisor takes GPUs only for drivers that its nvproxy lists, "
        "so that a driver upgrade can break it."
    )


def _memory(sessions: Number, name: str, host: Host) -> Quantity:
    level = LEVELS[name]
    overhead = given(
        level.overhead, name=f"{name}_overhead_bytes", provenance=level.provenance,
        source=level.source,
    )  # fmt: skip
    hosts: Quantity = hosts_by_memory(sessions, host.guest_bytes, overhead, host.usable_bytes)
    return hosts


def _cores(sessions: Number, host: Host) -> Quantity:
    hosts: Quantity = hosts_by_cores(sessions, host.session_cores, host.cores)
    return hosts


def _start(name: str) -> Quantity:
    level = LEVELS[name]
    return given(
        level.start, name=f"{name}_start_s", provenance=level.provenance, source=level.source
    )


def _row(name: str, sessions: Number, host: Host) -> dict[str, Quantity | str]:
    memory, cores = _memory(sessions, name, host), _cores(sessions, host)
    return {
        "isolation": name,
        "by memory": memory.named(f"{name}_hosts_by_memory", "hosts"),
        "by CPU": cores.named("hosts_by_cpu", "hosts"),
        "hosts": largest(memory=memory, cpu=cores).named(f"{name}_hosts", "hosts"),
        "start": _start(name),
        "GPU": "yes" if LEVELS[name].gpu else "no",
        "trust": LEVELS[name].trusts,
    }


def _fits(guest_bytes: Number, usable: Number) -> None:
    if not holds(guest_bytes <= usable):
        raise SpecError("a session is larger than a host", where="guest", remedy="a larger host")
