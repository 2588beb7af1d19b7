import sqlite3

import pytest
from sqlalchemy import text

from ridgeline.platform.doctor import database as checks
from ridgeline.platform.doctor.finding import Finding, Level
from ridgeline.store.database import open_store
from ridgeline.store.migrate import VERSION_TABLE, newest


def of(url: str) -> Finding:
    (found,) = [one for one in checks.database(url) if one.check == "database"]
    return found


def revise(url: str, revision: str) -> None:
    engine = open_store(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    engine.dispose()


def test_a_database_of_this_version_is_right(store_url):
    open_store(store_url).dispose()
    found = of(store_url)
    assert found.level is Level.OK
    assert f"of this version ({newest()})" in found.said


def test_an_empty_database_is_right_and_stays_empty(store_url):
    if store_url.startswith("sqlite"):
        file = checks.sqlite_file(store_url)
        assert file is not None
        file.touch()
    found = of(store_url)
    assert (found.level, found.said.endswith("made by the first `ridgeline up`")) == (
        Level.OK,
        True,
    )


def test_tables_of_a_newer_version_are_wrong(store_url):
    revise(store_url, "9999")
    found = of(store_url)
    assert found.level is Level.WRONG
    assert found.said.endswith("has tables of a newer version (9999)")


def test_tables_of_an_older_version_are_a_warning():
    found = checks.revised("database x", "0001", "0002", is_known=True)
    assert found.level is Level.WARNING
    assert "ridgeline store backup" in found.remedy


def test_a_file_that_is_not_there_is_made_later(sqlite_url):
    found = of(sqlite_url)
    assert found.level is Level.OK
    file = checks.sqlite_file(sqlite_url)
    assert file is not None
    assert not file.exists()


def test_a_file_that_is_no_database_is_wrong(tmp_path):
    file = tmp_path / "ledger.db"
    file.write_bytes(b"not at all a database" * 100)
    found = of(f"sqlite:///{file}")
    assert found.level is Level.WRONG
    assert "not a database" in found.said


def test_a_locked_database_does_not_fail_a_reader(sqlite_url):
    open_store(sqlite_url).dispose()
    file = checks.sqlite_file(sqlite_url)
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert of(sqlite_url).level is Level.OK
    writer.close()


def test_a_server_that_does_not_answer_is_wrong_without_its_password():
    found = of("postgresql://someone:s3cret@127.0.0.1:1/ledger")
    assert found.level is Level.WRONG
    assert "s3cret" not in str(found)


def test_a_url_of_no_known_kind_is_wrong():
    assert of("mysql://x/y").level is Level.WRONG


def test_postgresql_without_its_driver_is_wrong():
    (found,) = checks.database("postgresql://x/y", lambda name: name != "psycopg")
    assert found.level is Level.WRONG
    assert found.remedy == "pip install 'ridgeline[postgres]'"


def test_without_the_gateway_part_only_the_place_is_looked_at(sqlite_url):
    (found,) = checks.database(sqlite_url, lambda name: name != "sqlalchemy")
    assert found.check == "filesystem"


def test_the_clock_of_a_server_is_compared(postgres_url):
    found = [one for one in checks.database(postgres_url) if one.check == "database clock"]
    assert [one.level for one in found] == [Level.OK]


def test_clocks_that_are_apart_are_wrong():
    found = checks.clocks(1000.0, 1060.5)
    assert (found.level, found.said) == (Level.WRONG, "60 s from this machine's")


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:////var/x.db", "/var/x.db"),
        ("sqlite:///x.db", "x.db"),
        ("sqlite:///:memory:", None),
        ("postgresql://x/y", None),
    ],
)
def test_the_file_of_a_url(url, file):
    found = checks.sqlite_file(url)
    assert (None if found is None else str(found)) == file
