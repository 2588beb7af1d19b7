"""Where things are kept: folders that can be written, room on the disk, a filesystem that fits."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ridgeline.platform.doctor.finding import Finding, right, warning, wrong

_MOUNTS = Path("/proc/self/mountinfo")
_LITTLE_BYTES = 1_000_000_000
_TOO_LITTLE_BYTES = 100_000_000
#: SQLite's write-ahead log needs memory that all its users share, which these do not give.
_NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "beegfs", "gpfs", "ncpfs",
    "fuse.sshfs", "fuse.glusterfs", "glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.ceph",
    "fuse.rclone", "fuse.mount-s3", "fuse.juicefs",
}  # fmt: skip


def folder(check: str, path: Path, what: str, variable: str) -> Iterator[Finding]:
    """Whether a folder, or the one it will be made in, can be written, and how much is free."""
    there = existing(path)
    remedy = f"{variable}=… names another folder"
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".ridgeline-doctor-") as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        said = f"{path} cannot be written: {error.strerror}"
        yield wrong(check, said, f"{what} cannot be kept", remedy)
        return
    free = shutil.disk_usage(there).free
    said = f"{path}, {free / 1e9:,.1f} GB free"
    if free < _TOO_LITTLE_BYTES:
        means = f"{what} will soon fail to be written"
        yield wrong(check, said, means, f"make room there, or {remedy}")
    elif free < _LITTLE_BYTES:
        yield warning(check, said, f"not much room for {what}", f"make room there, or {remedy}")
    else:
        yield right(check, said)


def existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def sqlite_place(file: Path, mounts: Path = _MOUNTS) -> Finding:
    """Whether SQLite's write-ahead log works where the file lies."""
    there = existing(file if file.is_dir() else file.parent)
    kind = filesystem(there, mounts)
    means = (
        "its log cannot be shared there: a crash, or a second process, can lose what was written"
    )
    remedy = "gateway.database: a file on a disk of this machine, or postgresql://…"
    if kind in _NETWORK:
        return wrong("filesystem", f"{file} lies on {kind}, a network filesystem", means, remedy)
    problem = _wal_problem(there)
    if problem:
        return wrong("filesystem", f"no write-ahead log in {there}: {problem}", means, remedy)
    return right("filesystem", f"SQLite's write-ahead log works in {there} ({kind or 'unknown'})")


def _wal_problem(folder: Path) -> str:
    """Why a database with two connections does not work there; empty where it does."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".ridgeline-doctor-") as own:
            file = Path(own, "try.db")
            with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(file)) as other:
                (mode,) = one.execute("PRAGMA journal_mode=WAL").fetchone()
                if mode != "wal":
                    return f"the mode is {mode!r}"
                one.executescript("CREATE TABLE tried (x); INSERT INTO tried VALUES (1)")
                other.execute("SELECT x FROM tried").fetchone()
    except (OSError, sqlite3.Error) as error:
        return str(error)
    return ""


def filesystem(path: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of filesystem that a path lies on; empty where the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    path = path.resolve()
    best, kind = -1, ""
    for line in lines:
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if not dash or len(fields) < 5:
            continue
        point = Path(fields[4].encode().decode("unicode_escape"))
        if path.is_relative_to(point) and len(point.parts) >= best:  # a later mount hides it
            best, kind = len(point.parts), after.split()[0]
    return kind
