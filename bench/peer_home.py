"""Where a peer lives, and the record that says it is whole.

Law of this file: a peer has one folder, `.peers/<name>`, an environment of its own; the record is
written last, so that its presence means that everything before it went through. `bench/peers.py`
and `bench/llama_server.py` call it.
"""

import json
import subprocess
import time
from pathlib import Path

from ridgeline.errors import LaunchError

ROOT = Path(__file__).resolve().parent.parent
PEERS_DIR = ROOT / ".peers"
READY = "ready.json"


def folder(name: str) -> Path:
    """Where a peer lives (whether installed or not)."""
    return PEERS_DIR / name


def recorded(name: str) -> dict[str, str]:
    """The packages recorded when a peer was finished; empty if it never was."""
    stamp = folder(name) / READY
    if not stamp.is_file():
        return {}
    record: dict[str, dict[str, str]] = json.loads(stamp.read_text())
    return record["packages"]


def write_record(name: str, packages: dict[str, str]) -> None:
    """Says that the peer is whole, with the versions it consists of."""
    record = {"packages": dict(sorted(packages.items())), "date": time.strftime("%Y-%m-%d")}
    (folder(name) / READY).write_text(json.dumps(record, indent=1) + "\n")


def command_output(command: list[str], *, what: str, remedy: str) -> str:
    """Runs a command and returns what it printed. Raises LaunchError with its last words."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1500:]
        raise LaunchError(f"{what} could not do it: {said}", where=" ".join(command), remedy=remedy)
    return done.stdout


def pip(home: Path, *arguments: str) -> str:
    """Runs the peer's own pip. Raises LaunchError with pip's message."""
    return command_output(
        [str(home / "bin" / "python"), "-m", "pip", *arguments],
        what="pip",
        remedy="read pip's message above; the peers need x86-64 Linux and Python 3.11 or later",
    )
