"""Compiled kernels are kept, found again, and never stale."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.kernels import compiled

SCRIPT = """
import sys
import numpy as np
from ridgeline.kernels import cpu
x, w, out = np.ones((2, 16), np.float32), np.ones(16, np.float32), np.empty((2, 16), np.float32)
cpu.add_rmsnorm(x, 0, w, 1e-5, out, 1)
hits = sum(cpu.add_rmsnorm.stats.cache_hits.values())
misses = sum(cpu.add_rmsnorm.stats.cache_misses.values())
print(hits, misses)
"""


def hits_and_misses(cache: Path) -> str:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_second_process_compiles_nothing(tmp_path: Path):
    assert hits_and_misses(tmp_path) == "0 1"
    assert hits_and_misses(tmp_path) == "1 0"


def test_the_folder_is_named_after_the_text_of_all_kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    before = compiled.kernel_cache()
    assert before is not None
    assert before.parent == tmp_path / "cache"
    copies = tmp_path / "kernels"
    copies.mkdir()
    for file in Path(compiled.__file__).parent.glob("*.py"):
        (copies / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(compiled, "__file__", str(copies / "compiled.py"))
    assert compiled.kernel_cache() == before
    (copies / "simd.py").write_text("# another instruction")
    assert compiled.kernel_cache() not in (None, before)


def test_without_a_place_to_write_kernels_are_compiled_each_time(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked))
    assert compiled.kernel_cache() is None


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
def test_the_cache_is_ours_unless_numba_was_given_one(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path))
    folder = compiled.kernel_cache()
    assert folder is not None
    assert folder.parent == tmp_path / "kernels"
