"""Which accelerators this node has, and whose they are: one never belongs to two replicas.

Whose it is, is a lock on a file for each device, held for as long as its replica is there. The
system lets go of it when our process ends, however that comes. So it also holds between the
platforms that one user has on one machine. NVIDIA's only: others are named by `env`, see
docs/guide/engines.md. `platform.launches` asks here.
"""

import csv
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ridgeline.errors import LaunchError, SpecError
from ridgeline.paths import state_home

_PROGRAM = "nvidia-smi"
_ASKED = "index,uuid,name"
_WITHIN_S = 60.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NONE = "devices: [] where no accelerator is to be used"


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator; `number` is nvidia-smi's, which follows the PCI bus."""

    number: int
    uuid: str
    name: str


def present() -> tuple[Device, ...]:
    """The devices that this process may use; none where nvidia-smi is not installed.

    Raises LaunchError where it is and does not answer: then we do not know.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        return ()
    return visible(_told_by(program), os.environ.get(_VISIBLE))


@cache  # it takes seconds where no driver is kept loaded, and devices are built in
def _told_by(program: str) -> tuple[Device, ...]:
    """All that there are."""
    asked = [program, f"--query-gpu={_ASKED}", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        if done.returncode:
            raise ValueError((done.stdout + done.stderr).strip())
        return tuple(_device(row) for row in csv.reader(done.stdout.splitlines()) if row)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        problem = f"does not say which devices there are: {error}"
        raise LaunchError(problem, where=_PROGRAM, remedy=_NONE) from error


def visible(there: Sequence[Device], told: str | None) -> tuple[Device, ...]:
    """Those of them that CUDA_VISIBLE_DEVICES lets us have, in its order."""
    if told is None:
        return tuple(there)
    return tuple(_named(part.strip(), there) for part in told.split(",") if part.strip())


class Loan:
    """Devices that are one replica's until `close`."""

    def __init__(self, devices: Sequence[Device], locks: Sequence[int]) -> None:
        self.devices = tuple(devices)
        self._locks = list(locks)

    @property
    def env(self) -> Mapping[str, str]:
        """What tells a program to use these and no others; nothing where there are none."""
        if not self.devices:
            return {}
        numbers = ",".join(str(one.number) for one in self.devices)
        return {_VISIBLE: numbers, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def close(self) -> None:
        """They are free again."""
        while self._locks:
            os.close(self._locks.pop())


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices from which the replicas of a model get `each`; without any, they get none."""

    there: Sequence[Device]
    each: int

    @classmethod
    def of(cls, each: int, wanted: Sequence[int] | None, most: int, where: str) -> "Devices":
        """Those that a spec means (None: all), checked for `most` replicas. SpecError, LaunchError.

        Where there are none at all and none was named, nothing is given: a CPU build.
        """
        there = present() if wanted is None or wanted else ()
        if wanted:
            by_number = {one.number: one for one in there}
            absent = sorted(set(wanted) - set(by_number))
            if absent:
                known = ", ".join(map(str, by_number)) or "none"
                problem = f"there is no device {absent[0]} for us here, but {known}"
                raise SpecError(problem, where=f"{where}.devices", remedy=f"auto, or {_NONE}")
            there = tuple(by_number[number] for number in wanted)
        if there and each * most > len(there):
            problem = f"{most} replicas of {each} devices need {each * most}; {len(there)} are here"
            raise SpecError(problem, where=where, remedy=f"replicas.max: {len(there) // each}")
        return cls(there, each)

    def borrow(self) -> Loan:
        """Devices that nobody has. LaunchError where too few are free."""
        if not self.there:
            return Loan((), ())
        with _one_at_a_time():
            free = {one: lock for one in self.there if (lock := _lock(one)) is not None}
            mine = chosen([*free], self.each)
            for one in free.keys() - set(mine):
                os.close(free[one])
        if not mine:
            problem = f"{self.each} devices are needed, and {len(free)} of {len(self.there)} free"
            raise LaunchError(problem, where="devices", remedy="fewer replicas, or another device")
        return Loan(mine, [free[one] for one in mine])

    def has_room(self) -> bool:
        """Whether one more replica would get its devices now."""
        try:
            self.borrow().close()
        except LaunchError:
            return False
        return True


def chosen(free: Sequence[Device], count: int) -> tuple[Device, ...]:
    """Of the free ones, `count` that are neighbours from a multiple of `count` on, if there are.

    Boards wire neighbours together more closely. Without such, the first; empty where too few.
    """
    by_number = {one.number: one for one in free}
    for first in sorted(by_number):
        block = range(first, first + count)
        if first % count == 0 and all(number in by_number for number in block):
            return tuple(by_number[number] for number in block)
    return tuple(free[:count]) if len(free) >= count else ()


def _device(row: Sequence[str]) -> Device:
    number, uuid, name = (part.strip() for part in row)
    return Device(int(number), uuid, name)


def _named(part: str, there: Sequence[Device]) -> Device:
    """The device that CUDA means by this: a number, or as much of a UUID as is its alone."""
    fits: Callable[[Device], bool] = (
        (lambda one: one.number == int(part))
        if part.isdecimal()
        else (lambda one: one.uuid.startswith(part))
    )
    found = [one for one in there if fits(one)]
    if len(found) != 1:
        problem = f"{part!r} is no device that {_PROGRAM} tells of"
        raise LaunchError(problem, where=_VISIBLE, remedy=_NONE)
    return found[0]


def _folder() -> Path:
    folder = state_home() / "devices"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Whoever looks for free devices has them all for a moment, so others wait for that moment."""
    descriptor = os.open(_folder() / "borrowing", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(device: Device) -> int | None:
    """The device is ours until this descriptor is closed; None where somebody has it."""
    descriptor = os.open(_folder() / device.uuid, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
