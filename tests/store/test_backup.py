"""A backup brings back every row, on either database, or nothing at all."""

import gzip
import json
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, Table, insert, select
from sqlalchemy.types import BigInteger, Float, Integer

from ridgeline.errors import StoreError
from ridgeline.store.backup import backup, restore
from ridgeline.store.database import connect, open_store, reading, writing
from ridgeline.store.migrate import newest
from ridgeline.store.money import NanoUsd
from ridgeline.store.tables import audit, metadata

# PostgreSQL's text holds every character but NUL; half of a surrogate pair is no character.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
WHOLE = st.integers(-(2**63), 2**63 - 1)


def values(column: Any) -> st.SearchStrategy[Any]:
    kind = column.type
    if isinstance(kind, NanoUsd):
        some = WHOLE.map(lambda nano: nano * Decimal("1e-9"))
    elif isinstance(kind, Float):
        some = st.floats(allow_nan=False, allow_infinity=False)
    elif isinstance(kind, BigInteger):
        some = WHOLE
    elif isinstance(kind, Integer):
        some = st.integers(-(2**31), 2**31 - 1)
    else:
        some = TEXT
    return st.none() | some if column.nullable else some


def table_rows(table: Table) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({column.name: values(column) for column in table.columns})
    unique = [column.name for column in table.columns if column.unique or column.primary_key]
    if table.name == "replica_minutes":
        return st.lists(row, max_size=3, unique_by=lambda one: (one["replica"], one["minute"]))
    return st.lists(
        row, max_size=3, unique_by=tuple(lambda one, name=name: one[name] for name in unique)
    )


@st.composite
def contents(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    drawn = {one.name: draw(table_rows(one)) for one in metadata.sorted_tables}
    names = [tenant["name"] for tenant in drawn["tenants"]]
    for key in drawn["api_keys"]:
        key["tenant"] = draw(st.sampled_from(names)) if names else None
    if not names:
        drawn["api_keys"] = []
    return drawn


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(contents())
def test_every_row_comes_back_on_either_database(
    store: Engine, tmp_path: Path, drawn: dict[str, list[dict[str, Any]]]
):
    empty(store)
    fill(store, drawn)
    file, back = tmp_path / "backup", tmp_path / "back.db"
    wanted = sum(map(len, drawn.values()))
    try:
        assert backup(store, file) == wanted
        assert restore(f"sqlite:///{back}", file) == wanted
        other = open_store(f"sqlite:///{back}")
        assert rows(other) == rows(store)
        other.dispose()
    finally:
        for one in tmp_path.iterdir():
            if one.name.startswith("back"):
                one.unlink()


def test_a_file_of_sqlite_moves_to_postgresql(sqlite_url: str, postgres_url: str, tmp_path: Path):
    old = open_store(sqlite_url)
    fill(old, {"entries": [entry(n) for n in range(2500)], "audit": [change(7)]})
    assert backup(old, tmp_path / "moved") == 2501
    assert restore(postgres_url, tmp_path / "moved") == 2501
    new = open_store(postgres_url)
    assert rows(new) == rows(old)
    with writing(new) as connection:  # and counts on after the rows that came
        connection.execute(insert(audit).values({k: v for k, v in change(0).items() if k != "id"}))
        assert connection.execute(select(audit.c.id).order_by(audit.c.id)).scalars().all() == [7, 8]
    new.dispose()
    old.dispose()


def test_a_backup_is_of_one_moment_while_others_write(store: Engine, tmp_path: Path, monkeypatch):
    fill(store, {"accounts": [{"subject": "tenant:a", "state": "{}"}]})
    from ridgeline.store import backup as module

    original = module._rows

    def slowly(connection: Any) -> Any:
        for part in original(connection):
            fill(store, {"entries": [entry(1)]})  # after `accounts` was read, before `entries` is
            yield part

    monkeypatch.setattr(module, "_rows", slowly)
    assert backup(store, tmp_path / "file") == 1
    restore(f"sqlite:///{tmp_path}/other.db", tmp_path / "file")
    other = open_store(f"sqlite:///{tmp_path}/other.db")
    assert (len(rows(store)["entries"]), len(rows(other)["entries"])) == (1, 0)
    other.dispose()


def test_a_backup_is_its_owners_alone_and_replaces_nothing(store: Engine, tmp_path: Path):
    file = tmp_path / "file"
    backup(store, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="is there already"):
        backup(store, file)
    assert [one.name for one in tmp_path.iterdir() if "file" in one.name] == ["file"]


def test_a_backup_that_cannot_be_written_leaves_no_file(store: Engine, tmp_path: Path):
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        backup(store, tmp_path / "no" / "file")


def test_a_database_with_rows_is_left_alone(store_url: str, tmp_path: Path):
    store = open_store(store_url)
    fill(store, {"accounts": [{"subject": "tenant:a", "state": "{}"}]})
    backup(store, tmp_path / "file")
    store.dispose()
    with pytest.raises(StoreError, match=r"holds rows already \(in accounts\)") as told:
        restore(store_url, tmp_path / "file")
    assert "empty database" in told.value.remedy


def test_a_database_that_was_only_opened_can_be_restored_into(
    store: Engine, store_url: str, tmp_path: Path
):
    source = open_store("sqlite:///:memory:")
    fill(source, {"accounts": [{"subject": "tenant:a", "state": "{}"}]})
    backup(source, tmp_path / "file")
    assert restore(store_url, tmp_path / "file") == 1
    assert rows(store) == rows(source)
    source.dispose()


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """The lines of a good archive."""
    source = open_store("sqlite:///:memory:")
    fill(source, {"entries": [entry(n) for n in range(1200)]})
    backup(source, tmp_path / "good")
    source.dispose()
    return gzip.decompress((tmp_path / "good").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda data: gzip.compress(data)[:-200], "torn or changed"),
        (lambda data: gzip.compress(data[: data.rindex(b"{")]), "its end is missing"),
        (lambda data: gzip.compress(data.replace(b"req-7", b"req-x")), "not those"),
        (lambda data: gzip.compress(data.replace(b'"rows":1200', b'"rows":1199')), "not those"),
        (lambda data: gzip.compress(data.replace(b"[1,", b"[1,2,", 1)), "not those"),
        (lambda data: gzip.compress(data.replace(b'"format":1', b'"format":2')), "newer version"),
        (lambda data: gzip.compress(data.replace(newest().encode(), b"9999")), "newer version"),
        (lambda data: gzip.compress(b"\xff\xfe" + data), "torn or changed"),
        (lambda data: gzip.compress(b"{}\n"), "is no backup"),
        (lambda data: gzip.compress(b""), "its end is missing"),
        (lambda data: b"plain text", "torn or changed"),
        (lambda data: signed(data, b'"entries"', b'"sqlite_master"'), "of another form"),
        (lambda data: signed(data, b'"basis"', b'"base"'), "of another form"),
        (lambda data: signed(data, b'"req-7"', b'"req-8"'), "contradict one another"),
        (lambda data: signed(data, b'"req-7"', b'{"a":1}'), "database"),
    ],
)
def test_what_is_not_whole_brings_back_nothing(
    whole: bytes, store_url: str, tmp_path: Path, spoil: Any, problem: str
):
    (tmp_path / "bad").write_bytes(spoil(whole))
    with pytest.raises(StoreError, match=problem):
        restore(store_url, tmp_path / "bad")
    engine = connect(store_url)
    with reading(engine) as connection:
        assert not engine.dialect.has_table(connection, "entries")
    engine.dispose()


def test_a_file_that_is_not_there_is_named(store_url: str, tmp_path: Path):
    with pytest.raises(StoreError, match="nothing: is not there"):
        restore(store_url, tmp_path / "nothing")


def signed(data: bytes, old: bytes, new: bytes) -> bytes:
    """Changed by somebody who can compute a checksum."""
    import hashlib

    lines = data.replace(old, new).splitlines(keepends=True)
    digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    end = json.dumps({"rows": json.loads(lines[-1])["rows"], "sha256": digest}).encode()
    return gzip.compress(b"".join([*lines[:-1], end, b"\n"]))


def entry(n: int) -> dict[str, Any]:
    return {
        "id": n + 1, "request_id": f"req-{n}", "tenant": "a", "key_id": "k", "model": "m",
        "endpoint": "chat", "replica": "replica-0", "status": 200, "input_tokens": n,
        "cached_tokens": 0, "output_tokens": 2, "usd": Decimal("0.000000001") * n,
        "basis": "usage", "began_ns": n, "ended_ns": n + 1,
    }  # fmt: skip


def change(n: int) -> dict[str, Any]:
    return {"id": n, "at_ns": n, "actor": "x", "action": "y", "target": "z", "detail": "{}"}


def fill(store: Engine, drawn: dict[str, list[dict[str, Any]]]) -> None:
    with writing(store) as connection:
        for table in metadata.sorted_tables:
            if drawn.get(table.name):
                connection.execute(insert(table), drawn[table.name])


def empty(store: Engine) -> None:
    with writing(store) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


def rows(store: Engine) -> dict[str, list[Any]]:
    with reading(store) as connection:
        return {
            table.name: sorted(connection.execute(select(table)).all(), key=repr)
            for table in metadata.sorted_tables
        }
