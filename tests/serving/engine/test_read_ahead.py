"""What is read ahead is what the load will read, once, and nothing ever fails for it."""

import os
import threading
from pathlib import Path

import pytest

from ridgeline.serving.bench.page_cache import drop, resident_share
from ridgeline.serving.engine import read_ahead as reading
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.read_ahead import VARIABLE, read_ahead, weight_files


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "model-1.Q4.gguf"
    file.write_bytes(os.urandom(5_000_000))
    return file


def converted(cache: Path, gguf: Path, dtype: str) -> Path:
    file = cache / "weights" / f"{gguf.stem}-0123456789ab-0123456789ab-{dtype}.safetensors"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(os.urandom(5_000_000))
    return file


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(20)
    return not any(thread.is_alive() for thread in threads)


def test_a_ggufs_converted_weights_of_the_right_type_or_the_file_itself(
    tmp_path: Path, gguf: Path
) -> None:
    assert weight_files(EngineConfig(gguf)) == [gguf]
    assert weight_files(EngineConfig(gguf, cache_dir=tmp_path)) == [gguf]
    bf16, fp32 = (converted(tmp_path, gguf, dtype) for dtype in ("bf16", "fp32"))
    assert weight_files(EngineConfig(gguf, cache_dir=tmp_path)) == [bf16]
    assert weight_files(EngineConfig(gguf, dtype="int8", cache_dir=tmp_path)) == [bf16]
    assert weight_files(EngineConfig(gguf, dtype="fp32", cache_dir=tmp_path)) == [fp32]


def test_the_name_is_the_one_that_the_cache_gives(tmp_path: Path, gguf: Path) -> None:
    pytest.importorskip("torch", reason="converted weights are written with it")
    from ridgeline.serving.engine.converted_cache import entry_name

    (tmp_path / "weights").mkdir()
    entry = tmp_path / "weights" / entry_name(gguf, "bf16")
    entry.touch()
    assert weight_files(EngineConfig(gguf, cache_dir=tmp_path)) == [entry]


def test_a_folders_shards(tmp_path: Path) -> None:
    shards = [tmp_path / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for file in (*shards, tmp_path / "config.json"):
        file.touch()
    assert weight_files(EngineConfig(tmp_path)) == shards


def test_what_was_read_ahead_is_in_memory(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.sync()
    drop([gguf])
    threads = read_ahead(EngineConfig(gguf))
    assert len(threads) == reading.THREADS
    assert ended(threads)
    assert resident_share(gguf) in (None, 1.0)


def test_every_chunk_is_taken_once_whoever_takes_it(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    monkeypatch.setattr(reading, "_CHUNK_BYTES", 10_000)
    monkeypatch.setattr(reading, "_is_resident", lambda _, offset: not read.append(offset))
    assert ended(read_ahead(EngineConfig(gguf)))
    assert sorted(read) == list(range(0, 5_000_000, 10_000))


def test_nothing_is_read_where_it_is_off_or_would_fill_the_memory_or_is_not_there(
    tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(read_ahead(EngineConfig(tmp_path / "no.gguf")))
    monkeypatch.setattr(reading, "_memory_bytes", lambda: 2 * 4_999_999)
    assert read_ahead(EngineConfig(gguf)) == []
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, "0")
    assert read_ahead(EngineConfig(gguf)) == []
