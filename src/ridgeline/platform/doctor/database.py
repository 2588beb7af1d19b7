"""The database: its driver, whether it answers, and whether its tables are of this version."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from ridgeline.errors import RidgelineError
from ridgeline.platform.doctor.finding import Finding, right, warning, wrong
from ridgeline.platform.doctor.folders import sqlite_place

#: Budgets begin and keys end by both clocks.
_APART_S = 5.0
_SQLITE = "sqlite:///"


def is_postgres(url: str) -> bool:
    """Whether the URL is PostgreSQL's."""
    return urlsplit(url).scheme.partition("+")[0] in ("postgres", "postgresql")


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL; None for another database, or one in memory."""
    name = url.removeprefix(_SQLITE)
    return None if name == url or name in ("", ":memory:") else Path(name)


def has_module(name: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(name) is not None


def database(url: str, has: Callable[[str], bool] = has_module) -> Iterator[Finding]:
    """All that can be known of it without changing it."""
    file = sqlite_file(url)
    if file is not None:
        yield sqlite_place(file)
    if is_postgres(url) and not has("psycopg"):
        means = "the database cannot be reached"
        yield wrong("database", "psycopg, PostgreSQL's driver, is not installed", means, _POSTGRES)
        return
    if not has("sqlalchemy"):
        return  # what of the installation is missing, `extras` says
    if file is not None and not file.exists():
        yield right("database", f"{file} is not there yet: the first `ridgeline up` makes it")
        return
    try:
        yield from _tables(url)
    except RidgelineError as error:
        means = "nothing can be admitted or charged"
        yield wrong("database", f"{error.where}: {error.problem}", means, error.remedy)


_POSTGRES = "pip install 'ridgeline[postgres]'"


def _tables(url: str) -> Iterator[Finding]:
    """Its revision, and its clock. Raises StoreError where it does not answer."""
    from sqlalchemy import text

    from ridgeline.store.database import connect, reading, shown
    from ridgeline.store.migrate import current, is_known, newest

    engine = connect(url, create=False)
    try:
        with reading(engine) as connection:
            revision = current(connection)
            there_s = None
            if engine.dialect.name == "postgresql":
                there_s = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())"))
        where = shown(engine)
        known = revision is None or is_known(revision)
        yield revised(where, revision, newest(), is_known=known)
        if there_s is not None:
            yield clocks(float(there_s), time.time())
    finally:
        engine.dispose()


def revised(where: str, revision: str | None, newest: str, *, is_known: bool) -> Finding:
    """What the revision of the tables means."""
    if revision is None:
        return right(
            "database", f"{where} answers; its tables are made by the first `ridgeline up`"
        )
    if not is_known:
        means = "this version must not write there"
        remedy = "run the version of Ridgeline that made them, or a newer one"
        return wrong(
            "database", f"{where} has tables of a newer version ({revision})", means, remedy
        )
    if revision != newest:
        means = f"the next `ridgeline up` brings them to {newest}; older versions cannot go back"
        remedy = "ridgeline store backup FILE first, by the version that made them"
        return warning(
            "database", f"{where} has tables of an older version ({revision})", means, remedy
        )
    return right("database", f"{where} answers, its tables are of this version ({revision})")


def clocks(there_s: float, here_s: float) -> Finding:
    """Whether the database's machine has the time of this one."""
    apart_s = abs(there_s - here_s)
    if apart_s <= _APART_S:
        return right("database clock", f"{apart_s:.1f} s from this machine's")
    means = "limits, budgets and keys begin and end at two times"
    remedy = "timedatectl set-ntp true, on both machines"
    return wrong("database clock", f"{apart_s:,.0f} s from this machine's", means, remedy)
