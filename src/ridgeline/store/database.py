"""A database by its URL, opened so that what is committed is kept and writers queue.

SQLite: one file, write-ahead log, `synchronous=NORMAL`. A killed process loses nothing that was
committed. A power cut, or a kernel that dies, may lose the last transactions (those since the log
was last checkpointed), whole ones and in order; the file stays sound. PostgreSQL loses nothing
unless its own `synchronous_commit` or `fsync` is off.

A transaction of `writing` begins as a writer, so two of them wait for one another instead of
failing halfway; those of `reading` see one moment and, with SQLite, hold up nobody.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ridgeline.errors import MissingExtraError, StoreError
from ridgeline.store.migrate import migrate

#: How long a writer waits for the writers before it, and anybody for a connection.
_BUSY_S = 10.0
_CONNECT_S = 5
_REMEDY = "sqlite:///FILE, or postgresql://USER@HOST/NAME"
_READS = "ridgeline_reads"
_NUMBERS = count(1)


def open_store(url: str, *, create: bool = True) -> Engine:
    """The database at a URL, its tables as this version needs them.

    `sqlite:///FILE` (four slashes for an absolute path), `sqlite:///:memory:` (gone when the
    engine is disposed) or `postgresql://…`. Without `create`, an SQLite file must be there.
    Raises StoreError where it cannot be used, with no password in the message.
    """
    engine = connect(url, create=create)
    try:
        with explained(engine):
            migrate(engine)
    except StoreError:
        engine.dispose()
        raise
    return engine


def connect(url: str, *, create: bool = True) -> Engine:
    """The database at a URL, whatever tables it has. Nothing is asked of it yet."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise StoreError("is not a URL", where="database", remedy=_REMEDY) from error
    match parsed.drivername:
        case "sqlite":
            return _sqlite(parsed, create=create)
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return _postgres(parsed)
    raise StoreError(
        f"{parsed.drivername!r} is no kind of database that is known",
        where="database",
        remedy=_REMEDY,
    )


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write: committed at the end, undone on an exception."""
    with explained(engine), engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads, all of it from one moment."""
    with explained(engine), engine.connect() as connection:
        options: dict[str, Any] = {_READS: True}
        if engine.dialect.name == "postgresql":
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        yield connection.execution_options(**options)


@contextmanager
def explained(engine: Engine) -> Iterator[None]:
    """What goes wrong with the database becomes a StoreError.

    What our own code does wrong, a broken constraint among it, stays as it is.
    """
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, PoolTimeoutError) as error:
        problem, remedy = _told(error)
        problem = _without_password(problem, engine.url)
        raise StoreError(problem, where=shown(engine), remedy=remedy) from None


def shown(engine: Engine) -> str:
    """Where a database is, in words that may be printed: no password and no options."""
    url = engine.url
    if url.drivername == "sqlite":
        return f"database {url.database}"
    host = url.host or url.query.get("host", "")
    return f"database {url.database} at {host or 'this machine'}"


def _told(error: DBAPIError | PoolTimeoutError) -> tuple[str, str]:
    """A driver's complaint, and what to do about it."""
    origin = error.orig if isinstance(error, DBAPIError) else None
    problem = str(origin or error).strip().partition("\n")[0]
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, problem):
            return problem, remedy
    return problem, "see that the database runs, and that its URL is right"


_REMEDIES = (
    ("disk is full|No space left", "make room on the disk; what was committed is kept"),
    ("not a database", "name another file; this one is not SQLite's"),
    ("malformed", "restore a backup into a new file: ridgeline store restore"),
    ("is locked", "another process holds it; see that no program keeps a transaction open"),
    ("readonly|unable to open|disk I/O", "see that file and folder may be written"),
    ("password authentication|no password|role .* does not exist", "mend user and password"),
    ("database .* does not exist", "make it: createdb NAME"),
)


def _without_password(text: str, url: URL) -> str:
    for secret in (url.password, url.query.get("password")):
        if secret:
            text = text.replace(str(secret), "***")
    return text


def _sqlite(url: URL, *, create: bool) -> Engine:
    if url.query or url.host:
        wrong = "has options" if url.query else f"names a host, {url.host!r}"
        remedy = "sqlite:///FILE, with four slashes for an absolute path"
        raise StoreError(f"an SQLite URL that {wrong}", where="database", remedy=remedy)
    in_memory = url.database in (None, "", ":memory:")
    if in_memory:
        name, is_uri = f"file:/ridgeline-{next(_NUMBERS)}?vfs=memdb", True
    else:
        assert url.database is not None
        name, is_uri = str(_made(Path(url.database), create=create)), False

    def open_file() -> sqlite3.Connection:
        # No isolation level: transactions begin where `_begin` says, not where Python guesses.
        return sqlite3.connect(
            name, uri=is_uri, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )

    engine = create_engine(
        url.set(database=url.database or ":memory:"),
        creator=open_file,
        poolclass=QueuePool,
        pool_timeout=_BUSY_S,
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    if in_memory:
        _keep(engine, open_file)
    return engine


def _made(file: Path, *, create: bool) -> Path:
    """The file, made for its owner only: it says who used what."""
    try:
        if create:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
        elif not file.exists():
            remedy = "the first `ridgeline up` or `ridgeline tenants add` makes it"
            raise StoreError("is not there", where=f"database {file}", remedy=remedy)
    except OSError as error:
        raise StoreError(
            f"cannot be made: {error.strerror}",
            where=f"database {file}",
            remedy="name a file in a folder that may be written",
        ) from error
    return file


def _set_up(raw: sqlite3.Connection, _: object) -> None:
    """What SQLite forgets between connections, and the log's mode."""
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        raw.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    """A reader that became a writer would fail where another wrote since: say it at once."""
    reads = connection.get_execution_options().get(_READS, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _keep(engine: Engine, open_file: Callable[[], sqlite3.Connection]) -> None:
    """Hold a database in memory until its engine is disposed: it goes with the last connection."""
    held = open_file()

    @event.listens_for(engine, "engine_disposed")
    def _disposed(_: Engine) -> None:
        held.close()


def _postgres(url: URL) -> Engine:
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={"connect_timeout": _CONNECT_S},
            pool_pre_ping=True,  # a server that restarted in between is noticed before a query
            pool_timeout=_BUSY_S,
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "PostgreSQL needs the part [postgres] of Ridgeline (psycopg is not installed)",
            where="database",
            remedy="pip install 'ridgeline[postgres]'",
        ) from error
