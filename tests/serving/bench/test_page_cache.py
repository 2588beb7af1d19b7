"""What is read is what is there; what was dropped is looked at."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.bench import page_cache
from ridgeline.serving.bench.page_cache import drop, read_bytes_per_s, resident_share


@settings(deadline=None)  # it writes files
@given(st.integers(0, 100_000), st.integers(1, 9))
def test_the_runs_of_a_file_are_all_of_it_once(tmp_path_factory, size: int, threads: int) -> None:
    file = tmp_path_factory.mktemp("runs") / "file"
    file.write_bytes(os.urandom(size))
    runs = page_cache._runs(file, threads)
    assert len(runs) <= threads
    assert [start for _, start, _ in runs[1:]] == [end for _, _, end in runs[:-1]]
    assert sum(page_cache._read(*run) for run in runs) == size


def test_reading_takes_time_and_dropping_loses_nothing(tmp_path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_bytes(b"weights" * 10_000)
    drop(files)
    assert 0 < read_bytes_per_s(files, 2) < 1e12
    assert all(file.read_bytes() == b"weights" * 10_000 for file in files)


def test_what_was_just_read_is_in_memory_if_the_system_says_at_all(tmp_path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1_000_000))
    file.read_bytes()
    assert resident_share(file) in (None, 1.0)


def test_of_an_empty_file_and_of_a_system_that_does_not_say_nothing_is_known(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    assert resident_share(tmp_path / "empty") is None
    (tmp_path / "file").write_bytes(b"x")
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    assert resident_share(tmp_path / "file") is None
