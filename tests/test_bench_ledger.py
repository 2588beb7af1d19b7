import asyncio

import pytest

import ledger as bench


def test_it_measures_every_case_and_uses_a_real_ledger(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.ledger_writer, "_MOST_AT_ONCE", 512)
    rows = asyncio.run(bench.rows_of(sqlite_url, rounds=1, pairs=80))
    assert [row.case for row in rows][-2:] == ["c64", "c64: CPU for a pair"]
    assert all(row.ours > 0 for row in rows)
