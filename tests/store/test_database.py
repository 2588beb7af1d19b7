"""Databases are opened so that nothing committed is lost, and complaints can be acted on."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from ridgeline.errors import StoreError
from ridgeline.store.database import open_store, reading, shown, writing
from ridgeline.store.tables import accounts, api_keys, workers


def test_what_is_written_is_there_after_it_is_opened_again(store_url: str):
    first = open_store(store_url)
    with writing(first) as connection:
        connection.execute(insert(accounts).values(subject="tenant:a", state="{}"))
    first.dispose()
    again = open_store(store_url)
    with reading(again) as connection:
        assert connection.execute(select(accounts)).all() == [("tenant:a", "{}")]
    again.dispose()


def test_an_exception_undoes_a_transaction(store: Engine):
    def fail() -> None:
        with writing(store) as connection:
            connection.execute(insert(accounts).values(subject="tenant:a", state="{}"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rows(store) == 0


def test_a_row_of_nobody_is_refused(store: Engine):
    with pytest.raises(IntegrityError), writing(store) as connection:
        connection.execute(
            insert(api_keys).values(
                id="k", tenant="nobody", digest="d", hint="h", name="", role="user",
                limits="{}", created_ns=0,
            )
        )  # fmt: skip


def test_writers_that_read_first_wait_for_one_another(store: Engine):
    """Each adds one to what it read: a lost update, or a failed upgrade of a lock, would show."""
    with writing(store) as connection:
        connection.execute(insert(workers).values(id="w", until_ns=0, detail=""))

    def add() -> None:
        for _ in range(25):
            with writing(store) as connection:
                query = select(workers.c.until_ns).with_for_update()
                seen = connection.execute(query).scalar_one()
                connection.execute(workers.update().values(until_ns=seen + 1))

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reading(store) as connection:
        assert connection.execute(select(workers.c.until_ns)).scalar_one() == 150


def test_a_reader_sees_one_moment(store: Engine):
    with reading(store) as reader:
        before = reader.execute(select(func.count()).select_from(accounts)).scalar_one()
        with writing(store) as writer:
            writer.execute(insert(accounts).values(subject="tenant:a", state="{}"))
        after = reader.execute(select(func.count()).select_from(accounts)).scalar_one()
    assert (before, after, rows(store)) == (0, 0, 1)


def test_a_database_in_memory_is_shared_by_threads_and_gone_in_the_end():
    store = open_store("sqlite:///:memory:")
    other = open_store("sqlite:///:memory:")

    def add(n: int) -> None:
        with writing(store) as connection:
            connection.execute(insert(accounts).values(subject=f"tenant:{n}", state="{}"))

    threads = [threading.Thread(target=add, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (rows(store), rows(other)) == (8, 0)
    store.dispose()
    other.dispose()


def test_a_file_is_its_owners_alone(sqlite_url: str, tmp_path: Path):
    open_store(sqlite_url).dispose()
    assert stat.S_IMODE((tmp_path / "ledger.db").stat().st_mode) == 0o600


WRITER = """
import sys
from sqlalchemy import insert
from ridgeline.store.database import open_store, writing
from ridgeline.store.tables import accounts
store = open_store(sys.argv[1])
for n in range(10**9):
    with writing(store) as connection:
        connection.execute(insert(accounts).values(subject=str(n), state="x" * 500))
    print(n, flush=True)
"""


def test_kill_9_loses_nothing_that_was_committed(store_url: str):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, store_url], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(200):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        told = 200 + len(writer.stdout.read().splitlines())
    store = open_store(store_url)
    # At most one more than it could tell: committed, and killed before it said so.
    assert rows(store) in (told, told + 1)
    if store.dialect.name == "sqlite":
        with reading(store) as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
    store.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.db",
        "mysql://a:secret@b/c",
        "sqlite:///x.db?mode=ro",
        "sqlite://host/x.db",
        "postgresql://a:secret@host:port/c",
        "://secret",
    ],
)
def test_a_url_that_is_none_is_refused_with_one_that_would_do(url: str):
    with pytest.raises(StoreError, match="database") as told:
        open_store(url)
    assert "sqlite:///" in told.value.remedy
    assert "secret" not in str(told.value)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path):
    file = tmp_path / "notes.txt"
    file.write_text("not a database, " * 100)
    with pytest.raises(StoreError, match=r"notes.txt: file is not a database") as told:
        open_store(f"sqlite:///{file}")
    assert "another file" in told.value.remedy
    assert file.read_text() == "not a database, " * 100


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match=r"taken/ledger.db: cannot be made"):
        open_store(f"sqlite:///{tmp_path}/taken/ledger.db")
    with pytest.raises(StoreError, match="unable to open"):
        open_store(f"sqlite:///{tmp_path}")


def test_without_create_nothing_is_made(tmp_path: Path):
    with pytest.raises(StoreError, match="is not there"):
        open_store(f"sqlite:///{tmp_path}/new/ledger.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_keeps_what_was_committed(sqlite_url: str):
    store = open_store(sqlite_url)
    with writing(store) as connection:
        connection.execute(insert(accounts).values(subject="kept", state="{}"))
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()

    def fill() -> None:
        with writing(store) as connection:
            # The database's own bound answers as a full disk does.
            connection.execute(text(f"PRAGMA max_page_count={pages}"))
            connection.execute(insert(accounts).values(subject="lost", state="x" * 10**6))

    with pytest.raises(StoreError, match="full") as told:
        fill()
    assert "make room" in told.value.remedy
    assert rows(store) == 1
    store.dispose()


def test_a_disk_that_is_full_from_the_start_is_told(tmp_path: Path):
    """In a process that may write files of 8 kB only."""
    script = (
        "import resource, signal, sys\n"
        "from ridgeline.store.database import open_store\n"
        "from ridgeline.errors import StoreError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "try: open_store(sys.argv[1])\n"
        "except StoreError as error: print(error)\n"
    )
    url = f"sqlite:///{tmp_path}/ledger.db"
    done = subprocess.run(
        [sys.executable, "-c", script, url], capture_output=True, text=True, check=True
    )
    assert "ledger.db: d" in done.stdout  # disk I/O error, or: database or disk is full
    open_store(url).dispose()


def test_a_locked_database_says_so(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ridgeline.store.database._BUSY_S", 0.05)
    store = open_store(sqlite_url)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked") as told, writing(store):
        pass
    assert "another process" in told.value.remedy
    other.close()
    store.dispose()


def test_a_server_that_is_not_there_is_named_without_the_password():
    with pytest.raises(StoreError) as told:
        open_store("postgresql://anna:s3cret@127.0.0.1:1/ledger")
    assert "database ledger at 127.0.0.1" in str(told.value)
    assert "s3cret" not in str(told.value)


def test_a_database_that_is_not_there_says_how_to_make_it(postgres_url: str):
    with pytest.raises(StoreError, match="does not exist") as told:
        open_store(postgres_url.replace("/test_", "/other_"))
    assert "createdb" in told.value.remedy


def test_where_a_database_is_is_shown_without_secrets(postgres_url: str):
    store = open_store(postgres_url.replace("postgres@", "postgres:s3cret@"))
    assert shown(store).startswith("database test_")
    assert "s3cret" not in shown(store)
    store.dispose()


def test_a_connection_that_was_cut_is_made_anew(postgres_url: str):
    store = open_store(postgres_url)
    cut = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(StoreError), writing(store) as connection:
        connection.execute(text(cut))
    assert rows(store) == 0
    store.dispose()


def rows(store: Engine) -> int:
    with reading(store) as connection:
        return connection.execute(select(func.count()).select_from(accounts)).scalar_one()
