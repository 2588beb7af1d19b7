"""What runs here: who holds the spec's port, notes of platforms that are gone, orphans of ours."""

import errno
import json
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ridgeline.launch.running import Running
from ridgeline.paths import state_home
from ridgeline.platform.doctor.finding import Finding, right, warning, wrong
from ridgeline.spec import Platform

_PROC = Path("/proc")
_LISTENS = "0A"
#: Of a command line, so many characters.
_SHOWN = 70


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine."""

    pid: int
    parent: int
    user: int
    argv: tuple[str, ...]

    @property
    def shown(self) -> str:
        """Its number and the beginning of its command line."""
        command = " ".join(self.argv)
        short = command if len(command) <= _SHOWN else f"{command[: _SHOWN - 3]}..."
        return f"process {self.pid} ({short or 'nameless'})"


def processes(proc: Path = _PROC) -> dict[int, Process]:
    """All that can be seen; nothing where the system has no /proc."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if fields[0] != "Z":
                user = folder.stat().st_uid
                pid = int(folder.name)
                found[pid] = Process(pid, int(fields[1]), user, tuple(argv[:-1]))
    return found


def orphans(found: dict[int, Process], user: int) -> Iterator[Finding]:
    """Replicas and gateway workers of ours whose platform is gone: their parent is no Python."""
    lost = [
        one
        for one in found.values()
        if one.user == user and _is_ours(one.argv) and not _leads(found.get(one.parent))
    ]
    for one in lost:
        means = "it holds memory and cores for nobody, and should have left with its platform"
        yield wrong("orphans", f"{one.shown} has no platform any more", means, f"kill {one.pid}")
    if not lost:
        yield right("orphans", "no replica or worker without its platform")


def _is_ours(argv: Sequence[str]) -> bool:
    """Whether it was started by a platform: `python -m ridgeline serve … --supervised`."""
    if "ridgeline" not in argv[:4] or "-m" not in argv[:3]:
        return False
    return "--supervised" in argv or "gateway-worker" in argv


def _leads(parent: Process | None) -> bool:
    if parent is None or not parent.argv:
        return False
    first = Path(parent.argv[0]).name
    return first.startswith(("python", "ridgeline")) or any(
        Path(part).name == "ridgeline" for part in parent.argv[:3]
    )


def noted(folder: Path | None = None) -> Iterator[tuple[Path, Running | None]]:
    """Each note of a platform, also of one that is gone; None where it cannot be read as one."""
    for file in sorted((folder or state_home() / "running").glob("*.json")):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            yield file, Running(**{**told, "models": tuple(told["models"])})
        except (OSError, ValueError, TypeError, KeyError):
            yield file, None


def notes(found: Iterable[tuple[Path, Running | None]]) -> Iterator[Finding]:
    """Notes of platforms that are not up any more, and of those that are."""
    up = []
    for file, note in found:
        if note is None:
            yield warning("platforms", f"{file} is no note of ours", "it is ignored", f"rm {file}")
        elif note.alive():
            up.append(f"{note.name} at {note.url}")
        else:
            said = f"{note.name} was killed: process {note.pid} is gone, its note is still here"
            means = "its running answers were cut; what they used is settled once it is up again"
            yield warning("platforms", said, means, "ridgeline status (it sweeps the note away)")
    yield right("platforms", f"up: {', '.join(up) or 'none'}")


def port(platform: Platform, up: Sequence[Running]) -> Finding:
    """Whether the gateway of the spec can listen, or by whom its port is taken."""
    host, number = platform.gateway.host, platform.gateway.port
    where = platform.gateway.listen
    if number == 0:
        return right("port", "the system chooses a free one")
    try:
        _try(host, number)
    except OSError as error:
        return _cannot(error, where, number, [one for one in up if one.name == platform.name])
    return right("port", f"{where} is free")


def _try(host: str, number: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(address)


def _cannot(error: OSError, where: str, number: int, up: Sequence[Running]) -> Finding:
    if error.errno == errno.EADDRINUSE:
        if any(one.url.endswith(f":{number}") for one in up):
            return right("port", f"{where} is this platform's own: it is up")
        holder = listener(number)
        by = holder.shown if holder else "a process of somebody else"
        remedy = "gateway.listen with another port, or stop that process"
        return wrong("port", f"{where} is taken by {by}", "`ridgeline up` does not start", remedy)
    if error.errno == errno.EACCES:
        remedy = "a port from 1024 on, with nginx or Caddy in front (docs/guide/tls.md)"
        means = "`ridgeline up` does not start"
        return wrong("port", f"{where} is not for this user", means, remedy)
    remedy = "gateway.listen: an address of this machine"
    told = error.strerror or str(error)
    return wrong("port", f"{where}: {told}", "`ridgeline up` does not start", remedy)


def listener(number: int, proc: Path = _PROC) -> Process | None:
    """Who listens on a port, as far as this user may know."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(number, proc)}
    for process in processes(proc).values():
        with suppress(OSError):
            for file in (proc / str(process.pid) / "fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    if str(file.readlink()) in sockets:
                        return process
    return None


def _inodes(number: int, proc: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == number:
                    yield fields[9]
