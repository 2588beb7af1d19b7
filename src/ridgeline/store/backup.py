"""All rows of a database in one file, and back into any other: a backup, and the way to move.

Values go as the database holds them (money in whole nano-dollars), so that the steps of migrations
that came later can be run on them once they are back.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, Engine, column, func, insert, inspect, select, table, text
from sqlalchemy.exc import IntegrityError

from ridgeline.errors import StoreError
from ridgeline.store.archive import Head, Reader, Rows, newer, write_archive
from ridgeline.store.database import connect, explained, reading, shown
from ridgeline.store.migrate import current, is_known, lock, newest, upgrade
from ridgeline.store.tables import metadata

_BATCH = 1000


def backup(engine: Engine, file: Path) -> int:
    """Write every row, all as of one moment, while others read and write on; how many there were.

    StoreError where the file is there already or cannot be written.
    """
    with reading(engine) as connection:
        head = Head(current(connection) or newest(), time.time_ns())
        return write_archive(file, head, _rows(connection))


def restore(url: str, file: Path) -> int:
    """Put an archive into an empty database, all of it or nothing; how many rows there were.

    StoreError where the database is in use, or the archive is torn, changed or newer.
    """
    with closing(Reader(file)) as archive:
        if not is_known(archive.head.schema):
            raise newer(file, f"schema {archive.head.schema}")
        engine = connect(url)
        try:
            with explained(engine), engine.begin() as connection:
                lock(connection)
                _require_empty(connection, archive.head.schema, shown(engine))
                upgrade(connection, archive.head.schema)
                rows = sum(_put(connection, part, file) for part in archive.parts(_BATCH))
                _count_on(connection)
                upgrade(connection)
        finally:
            engine.dispose()
    return rows


def _rows(connection: Connection) -> Iterator[Rows]:
    for one in metadata.sorted_tables:
        names = tuple(each.name for each in one.columns)
        # Columns without their types give what the database holds.
        place = table(one.name, *map(column, names))
        query = select(place).order_by(*(place.c[key.name] for key in one.primary_key))
        streamed = connection.execution_options(yield_per=_BATCH).execute(query)
        for some in streamed.partitions():
            yield Rows(one.name, names, [list(row) for row in some])


def _require_empty(connection: Connection, schema: str, where: str) -> None:
    there = set(inspect(connection).get_table_names()) & set(metadata.tables)
    used = [name for name in sorted(there) if _has_rows(connection, name)]
    now = current(connection)
    if used or now not in (None, schema):
        problem = f"holds rows already (in {used[0]})" if used else f"has tables of revision {now}"
        raise StoreError(problem, where=where, remedy="name a new, empty database")


def _has_rows(connection: Connection, name: str) -> bool:
    query = select(text("1")).select_from(table(name)).limit(1)
    return connection.execute(query).first() is not None


def _put(connection: Connection, part: Rows, file: Path) -> int:
    place = table(part.table, *map(column, part.columns))
    there = inspect(connection)
    if not there.has_table(part.table) or set(part.columns) != {
        one["name"] for one in there.get_columns(part.table)
    }:
        raise StoreError(f"has a table {part.table!r} of another form", where=str(file))
    try:
        connection.execute(
            insert(place), [dict(zip(part.columns, row, strict=True)) for row in part.rows]
        )
    except IntegrityError as error:
        problem = f"has rows of {part.table!r} that contradict one another"
        raise StoreError(problem, where=str(file), remedy="restore another backup") from error
    return len(part.rows)


def _count_on(connection: Connection) -> None:
    """PostgreSQL numbers new rows from a sequence of its own: after the rows that are back."""
    if connection.dialect.name != "postgresql":
        return
    for one in metadata.sorted_tables:
        for key in one.primary_key:
            if key.autoincrement is True:
                connection.execute(
                    select(
                        func.setval(func.pg_get_serial_sequence(one.name, key.name), func.max(key))
                    )
                )
