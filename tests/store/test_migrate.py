"""Tables are made and changed by steps, by one process at a time."""

import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from ridgeline.errors import StoreError
from ridgeline.store import migrate
from ridgeline.store.database import connect, open_store, reading, writing
from ridgeline.store.migrate import VERSION_TABLE, current, newest
from ridgeline.store.tables import metadata


def test_the_steps_make_the_tables_that_queries_name(store: Engine):
    with reading(store) as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        # What `compare_metadata` does not look at.
        for table in metadata.sorted_tables:
            there = inspect(connection).get_pk_constraint(table.name)
            assert there["constrained_columns"] == [key.name for key in table.primary_key]
            assert there["name"] == f"pk_{table.name}"


def test_opening_again_changes_nothing(store_url: str):
    open_store(store_url).dispose()
    again = open_store(store_url)
    with reading(again) as connection:
        assert current(connection) == newest()
    again.dispose()


def test_eight_processes_may_start_at_once(store_url: str):
    script = (
        "import sys; from ridgeline.store.database import open_store; sys.stdin.readline();"
        " open_store(sys.argv[1]).dispose()"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, store_url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for _ in range(8)
    ]  # fmt: skip
    for process in started:  # all of them wait, imported, for a line
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate()[0] for process in started]
    assert told == [""] * 8
    store = open_store(store_url)
    with reading(store) as connection:
        assert set(metadata.tables) < set(inspect(connection).get_table_names())
    store.dispose()


def test_newer_tables_are_refused(store_url: str):
    store = open_store(store_url)
    with writing(store) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    store.dispose()
    with pytest.raises(StoreError, match=r"newer version \(revision 9999") as told:
        open_store(store_url)
    assert "run the version" in told.value.remedy


def test_another_programs_tables_are_left_alone(store_url: str):
    other = connect(store_url)
    with writing(other) as connection:
        connection.execute(text("CREATE TABLE tenants (house TEXT)"))
    with pytest.raises(StoreError, match="'tenants' that Ridgeline did not make"):
        open_store(store_url)
    with reading(other) as connection:
        assert inspect(connection).get_table_names() == ["tenants"]
    other.dispose()


def test_a_failed_step_leaves_the_database_as_it_was(store_url: str, monkeypatch):
    engine = connect(store_url)

    def fail(connection: object, revision: object = None) -> None:

        connection.execute(text("CREATE TABLE half (x TEXT)"))
        upgrade(connection, revision)
        raise RuntimeError("killed here")

    upgrade = migrate.upgrade
    monkeypatch.setattr(migrate, "upgrade", fail)
    with pytest.raises(RuntimeError):
        migrate.migrate(engine)
    with reading(engine) as connection:
        assert inspect(connection).get_table_names() == []
    engine.dispose()
