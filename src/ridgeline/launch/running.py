"""What runs on this machine now: one small file for each platform that is up.

`up` writes it, `status` and `down` read it. A file whose process is gone is swept away.
"""

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from ridgeline.errors import LaunchError
from ridgeline.paths import state_home


@dataclass(frozen=True, slots=True)
class Running:
    """A platform that is up: its gateway's address, and the process that leads it.

    `began` tells this process from a later one that got the same id.
    """

    name: str
    pid: int
    began: str
    url: str
    models: tuple[str, ...]
    logs: str

    @property
    def file(self) -> Path:
        """Where it is written down."""
        return _folder() / f"{self.name}.json"

    def alive(self) -> bool:
        """Whether that very process still runs."""
        return _began(self.pid) == self.began

    def save(self) -> None:
        """Write it down, in one step. LaunchError where that cannot be."""
        draft = self.file.with_suffix(f".{self.pid}.tmp")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
            draft.replace(self.file)
        except OSError as error:
            raise LaunchError(
                f"what runs cannot be noted there: {error.strerror}",
                where=str(self.file.parent),
                remedy="RIDGELINE_STATE=… names a folder that can be written",
            ) from error

    def stop(self) -> None:
        """Ask it to drain and stop."""
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            self.file.unlink(missing_ok=True)


def write(name: str, url: str, models: tuple[str, ...], logs: Path) -> Running:
    """Note that this process leads a platform; LaunchError when one of that name is up."""
    for other in read():
        if other.name == name:
            raise LaunchError(
                f"a platform of this name is up already, at {other.url}",
                where=f"platform {name}",
                remedy=f"ridgeline down {name}, or up with another --name and --port",
            )
    running = Running(name, os.getpid(), _began(os.getpid()), url, models, str(logs))
    running.save()
    return running


def read() -> list[Running]:
    """All platforms that are up here, by name."""
    found = []
    for file in sorted(_folder().glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            running = Running(**{**data, "models": tuple(data["models"])})
        except (OSError, ValueError, TypeError, KeyError):
            continue  # swept away meanwhile, or not ours
        if running.alive():
            found.append(running)
        else:
            file.unlink(missing_ok=True)
    return found


def _folder() -> Path:
    return state_home() / "running"


def _began(pid: int) -> str:
    """A mark of when the process began: "" where no such process runs.

    Linux has the start in clock ticks; elsewhere the process id alone has to do.
    """
    try:
        # The command's name is in brackets and may hold spaces: count behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "runs"
    return "" if Path("/proc/self/stat").exists() else "runs"
