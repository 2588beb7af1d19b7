import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.serving.engine.tiny_models import write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine import gguf_weights
from ridgeline.serving.engine.converted_cache import ConvertedCache, entry_name
from ridgeline.serving.engine.model_files import open_model

SHAPES = {"a": (3, 5), "b": (7,)}


def weights() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(15.0).reshape(3, 5) / 7, "b": -torch.arange(7.0)}


def convert() -> Iterator[tuple[str, torch.Tensor]]:
    yield from weights().items()


def never() -> Iterator[tuple[str, torch.Tensor]]:
    raise AssertionError("this should have come from the cache")
    yield


def equal(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == SHAPES.keys() and all(
        torch.equal(found[name], tensor) for name, tensor in weights().items()
    )


def entries(cache_dir: Path) -> list[Path]:
    return sorted((cache_dir / "weights").iterdir())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fill(source: Path, cache_dir: Path) -> Path:
    assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, convert))
    (entry,) = entries(cache_dir)
    return entry


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_second_start_of_a_model_dequantises_nothing(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    file = write_tiny(tmp_path / "m.gguf", layout="gguf", quantization="Q4_1")
    uncached = open_model(file).tensors(dtype)
    first = open_model(file, cache_dir=cache_dir).tensors(dtype)
    monkeypatch.setattr(gguf_weights, "dequantize", None)
    second = open_model(file, cache_dir=cache_dir).tensors(dtype)
    assert list(first) == list(second) == list(uncached)
    for name, tensor in uncached.items():
        assert torch.equal(first[name], tensor), name
        assert torch.equal(second[name], tensor), name
        assert second[name].dtype == tensor.dtype


def test_an_entry_is_found_again(source: Path, cache_dir: Path) -> None:
    fill(source, cache_dir)
    assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, never))


@pytest.mark.parametrize("keep_bytes", [0, 7, 100, -1])
def test_a_torn_entry_is_made_anew(source: Path, cache_dir: Path, keep_bytes: int) -> None:
    entry = fill(source, cache_dir)
    entry.write_bytes(entry.read_bytes()[:keep_bytes])
    assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, convert))
    assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, never))


def test_an_entry_with_another_head_is_made_anew(source: Path, cache_dir: Path) -> None:
    entry = fill(source, cache_dir)
    entry.write_bytes(entry.read_bytes().replace(b'"b"', b'"c"'))
    assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, convert))


@pytest.mark.parametrize("change", ["time", "size"])
def test_a_changed_source_is_converted_again_and_its_old_entry_removed(
    source: Path, cache_dir: Path, change: str
) -> None:
    old = fill(source, cache_dir)
    if change == "size":
        source.write_bytes(b"GGUF and more")
    else:
        os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
    assert fill(source, cache_dir) != old


def test_other_models_and_dtypes_keep_their_entries(
    tmp_path: Path, source: Path, cache_dir: Path
) -> None:
    other = tmp_path / "elsewhere" / "model.gguf"
    other.parent.mkdir()
    other.write_bytes(b"GGUF")
    assert entry_name(other, "fp32") != entry_name(source, "fp32")
    cache = ConvertedCache(cache_dir)
    for file in (other, source):
        cache.tensors(file, "fp32", SHAPES, convert)
    halves = ((name, tensor.to(torch.bfloat16)) for name, tensor in convert())
    cache.tensors(source, "bf16", SHAPES, lambda: halves)
    assert len(entries(cache_dir)) == 3


def test_a_link_and_its_target_share_an_entry(tmp_path: Path, source: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(source)
    assert entry_name(link, "fp32") == entry_name(source, "fp32")


def test_a_folder_that_cannot_be_made_is_a_warning_only(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert equal(ConvertedCache(tmp_path / "file").tensors(source, "fp32", SHAPES, convert))


def test_a_full_disk_is_a_warning_and_leaves_nothing_behind(
    source: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, convert))
    assert entries(cache_dir) == []


def test_a_conversion_that_fails_midway_leaves_nothing_behind(
    source: Path, cache_dir: Path
) -> None:
    def fails() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", weights()["a"]
        raise ModelError("the file is torn")

    with pytest.raises(ModelError, match="torn"):
        ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, fails)
    assert entries(cache_dir) == []


def test_two_that_convert_at_once_both_succeed(source: Path, cache_dir: Path) -> None:
    both_are_writing = threading.Barrier(2, timeout=30)
    results = []

    def slowly() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", weights()["a"]
        both_are_writing.wait()
        yield "b", weights()["b"]

    def start() -> None:
        results.append(equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, slowly)))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True, True]
    assert len(entries(cache_dir)) == 1


def test_only_what_was_abandoned_long_ago_is_swept(source: Path, cache_dir: Path) -> None:
    folder = cache_dir / "weights"
    folder.mkdir(parents=True)
    fresh, abandoned = folder / ".unfinished-1", folder / ".unfinished-2"
    for file in (fresh, abandoned):
        file.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(abandoned, (two_days_ago, two_days_ago))
    ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, convert)
    assert fresh.exists()
    assert not abandoned.exists()


def test_another_that_finishes_during_the_sweep_is_no_error(
    source: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache_dir / "weights"
    folder.mkdir(parents=True)
    (folder / ".unfinished-1").write_bytes(b"half")
    glob = Path.glob

    def finished_when_listed(path: Path, pattern: str) -> list[Path]:
        found = list(glob(path, pattern))
        (folder / ".unfinished-1").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "glob", finished_when_listed)
    assert equal(ConvertedCache(cache_dir).tensors(source, "fp32", SHAPES, convert))
