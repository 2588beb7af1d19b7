"""What the system grants: the time, time zones, open files, memory, variables of the spec."""

import ctypes
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import ridgeline
from ridgeline.errors import ModelError
from ridgeline.platform.doctor.finding import Finding, right, warning, wrong
from ridgeline.serving.control import room
from ridgeline.serving.spec import FakeEngine, ModelSpec, RidgelineEngine, UrlEngine
from ridgeline.spec import Platform

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
#: Of adjtimex(2): nobody keeps the clock right.
_UNSYNCHRONISED = 0x0040
_TIMEX_BYTES = 256
#: Descriptors of one stream, the client's and the replica's, and those of the gateway itself.
_FILES_OF_A_STREAM = 2
_OWN_FILES = 200
#: Streams that are counted with where no spec says how many there can be.
_STREAMS = 64
#: Requests at once in a replica of somebody else's engine.
_SLOTS = 256
_ZONES = ("UTC", "Europe/Berlin")


def clock(now_s: float, built_s: float, is_synchronised: bool | None) -> Finding:
    """Whether the time can be right. `built_s` is when the package was installed, at the latest."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    remedy = "timedatectl set-ntp true, or start chronyd"
    if now_s < built_s - 86_400:
        said = f"it is {shown}, before this package was installed"
        return wrong("clock", said, "budgets and keys begin and end at wrong times", remedy)
    if is_synchronised is False:
        means = "it drifts: budgets and keys begin and end at slightly wrong times"
        return warning("clock", f"it is {shown}, and nothing keeps the clock right", means, remedy)
    kept = "" if is_synchronised is None else ", kept right by the system"
    return right("clock", f"it is {shown}{kept}")


def built_s() -> float:
    """When this package's files were written."""
    return Path(ridgeline.__file__).stat().st_mtime


def is_synchronised() -> bool | None:
    """Whether somebody keeps this machine's clock right; None where it does not say."""
    if sys.platform != "linux":
        return None
    told = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: adjtimex reads and changes nothing
    try:
        state = ctypes.CDLL(None).adjtimex(told)
    except (OSError, AttributeError):
        return None
    status_at = 5 * ctypes.sizeof(ctypes.c_long) if ctypes.sizeof(ctypes.c_long) == 8 else 20
    status = int.from_bytes(told.raw[status_at : status_at + 4], sys.byteorder)
    return None if state < 0 else not status & _UNSYNCHRONISED


def zones(find: Callable[[str], object] = ZoneInfo) -> Finding:
    """Whether time zones can be looked up."""
    try:
        for name in _ZONES:
            find(name)
    except (KeyError, OSError):
        means = "budgets and schedules in other zones than this machine's are refused"
        said = "there is no database of time zones"
        return wrong("time zones", said, means, "pip install tzdata")
    return right("time zones", f"found, e.g. {_ZONES[-1]}")


def open_files(platform: Platform | None, limits: tuple[int, int] | None = None) -> Finding:
    """Whether so many streams as there can be may be open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE) if limits is None else limits
    streams = _streams(platform)
    needed = _FILES_OF_A_STREAM * streams + _OWN_FILES
    said = f"{soft:,} open files allowed, {needed:,} wanted for {streams:,} streams at once"
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = hard == resource.RLIM_INFINITY or hard >= needed
        remedy = f"ulimit -n {needed}" if allowed else f"LimitNOFILE={needed} in the systemd unit"
        means = "beyond them connections are refused, while replicas have room"
        return warning("open files", said, means, remedy)
    return right("open files", said)


def _streams(platform: Platform | None) -> int:
    """Requests that all replicas take at once."""
    if platform is None:
        return _STREAMS
    total = 0
    for model in platform.models:
        engine, replicas = model.engine, model.replicas
        own = engine.max_seqs if isinstance(engine, RidgelineEngine | FakeEngine) else _SLOTS
        count = len(engine.urls) if isinstance(engine, UrlEngine) else replicas.most
        total += count * (replicas.slots or own)
    return total


def memory(platform: Platform, have: int | None) -> Iterator[Finding]:
    """Whether the replicas of the spec fit into `have` bytes; None where that is not known."""
    if have is None:
        yield right("memory", "this system does not say how much is free")
        return
    needed = {one.name: _needed_bytes(one) for one in platform.models}
    least = sum(needed[one.name] * one.replicas.min for one in platform.models)
    most = sum(needed[one.name] * one.replicas.most for one in platform.models)
    gigabytes = f"{have / 1e9:,.1f} GB are free"
    remedy = "fewer replicas, or a smaller engine.kv_cache"
    if least > have:
        said = f"replicas need up to {least / 1e9:,.1f} GB, {gigabytes}"
        yield wrong("memory", said, "the system ends the one that asks last", remedy)
    elif most > have:
        said = f"replicas.max needs up to {most / 1e9:,.1f} GB, {gigabytes}"
        yield warning("memory", said, "under load the last ones find no room", remedy)
    else:
        yield right("memory", f"replicas need up to {most / 1e9:,.1f} GB, {gigabytes}")


def _needed_bytes(model: ModelSpec) -> int:
    try:
        return room.needed_bytes(model)
    except ModelError:
        return 0  # its weights are not here, which is said elsewhere


def free_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """What is free, of the machine or of the container that we are in; None where unknown."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    told = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    if "MemAvailable" not in told:
        return None
    free = int(told["MemAvailable"][0]) * 1024
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    return free if limit is None else min(free, max(0, limit - (used or 0)))


def _number(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max": no limit


def variables(platform: Platform, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether the variables that the spec names are set. What is in them is never shown."""
    there = []
    for where, name in _named(platform.model_dump(), ""):
        if environment.get(name):
            there.append(name)
        else:
            said = f"{name} is not set, which {where} names"
            yield wrong("variables", said, "`ridgeline up` does not start", f"export {name}=…")
    if there:
        yield right("variables", f"set: {', '.join(sorted(set(there)))}")


def _named(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Each field of the spec that names a variable, and the variable."""
    if isinstance(value, dict):
        for key, part in value.items():
            inside = f"{where}.{key}" if where else key
            if key.endswith("_env") and isinstance(part, str):
                yield inside, part
            else:
                yield from _named(part, inside)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _named(part, f"{where}[{number}]")
