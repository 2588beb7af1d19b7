"""The tables of a database brought to what this version needs, by one process at a time.

The steps are in `migrations/versions`, in the package. All of them run in one transaction that
begins with a lock, so of several gateways that start at once one migrates and the others wait; one
that is killed halfway leaves the database as it was.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from ridgeline.errors import StoreError
from ridgeline.store.tables import metadata

#: The table with the revision. Its own name: another program's Alembic may share the database.
VERSION_TABLE = "ridgeline_schema"
# Any number that others are unlikely to lock: "ridgelin" as bytes.
_LOCK = int.from_bytes(b"ridgelin", "big") & 0x7FFF_FFFF_FFFF_FFFF


def migrate(engine: Engine) -> None:
    """Bring the tables up to date. StoreError where they are newer, or somebody else's."""
    with engine.begin() as connection:
        lock(connection)
        upgrade(connection)


def lock(connection: Connection) -> None:
    """Wait until nobody else holds it, up to the transaction's end.

    For what has to see the rows that it depends on standing still: migrations, restoring, changes
    of tenants. SQLite's writers wait for one another anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def upgrade(connection: Connection, revision: str | None = None) -> None:
    """Run the steps that are missing, up to `revision`, else up to the newest."""
    now = current(connection)
    wanted = revision or newest()
    if now == wanted:
        return
    if now is None:
        _refuse_strangers(connection)
    elif not is_known(now):
        raise StoreError(
            f"its tables are of a newer version (revision {now}; newest known: {newest()})",
            where="database",
            remedy="run the version of Ridgeline that made them, or a newer one",
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, wanted)


def current(connection: Connection) -> str | None:
    """The revision of the tables that are there; None where there are none."""
    options = {"version_table": VERSION_TABLE}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


def newest() -> str:
    """The revision that this version of Ridgeline needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "the package has no migrations"
    return head


def is_known(revision: str) -> bool:
    """Whether the steps up to a revision are in this package."""
    steps = ScriptDirectory.from_config(_config()).walk_revisions()
    return any(step.revision == revision for step in steps)


def _refuse_strangers(connection: Connection) -> None:
    taken = sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))
    if taken:
        raise StoreError(
            f"has a table {taken[0]!r} that Ridgeline did not make",
            where="database",
            remedy="give Ridgeline a database of its own",
        )


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config.set_main_option("script_location", folder)
    return config
