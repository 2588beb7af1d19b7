"""Databases for tests: a fresh SQLite file, and a fresh database of a private PostgreSQL.

`store_url` (and `store`, its engine) runs a test once on each; `sqlite_url` and `postgres_url` are
for tests of one of them. The server listens on a Unix socket in a temporary folder only, and is not
started before a test asks for it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine

_NUMBERS = count(1)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def postgres_url(postgres_server: Path) -> Iterator[str]:
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg: make setup-dev")
    name = f"test_{next(_NUMBERS)}"
    with psycopg.connect(host=str(postgres_server), user="postgres", autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield f"postgresql://postgres@/{name}?host={postgres_server}"
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty database on each of the two kinds."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    """The same, opened: with its tables."""
    from ridgeline.store.database import open_store

    engine = open_store(store_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """A PostgreSQL of this session's own: the folder with its socket."""
    programs = _programs()
    # PostgreSQL refuses to run as root; a socket's path may have 100 characters at most.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="ridgeline-pg-"))
    if user:
        shutil.chown(folder, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        # To a file: a server that keeps a pipe open would be waited for.
        with (folder.parent / f"{folder.name}.log").open("ab") as log:
            subprocess.run(command, check=True, user=user, cwd=folder, stdout=log, stderr=log)

    data = str(folder / "data")
    # Nothing here has to survive a power cut, so nothing waits for the disk.
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
    run("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
    try:
        yield folder
    finally:
        run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)
        (folder.parent / f"{folder.name}.log").unlink()


def _programs() -> Path:
    """The folder with initdb; Debian keeps it out of the PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        pytest.skip("needs PostgreSQL's programs, e.g. apt-get install postgresql")
    return versions[-1].parent
