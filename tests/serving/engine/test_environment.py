"""The engine process starts with one pool of threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.serving.engine.environment import engine_environment

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

THREADS = """
import os
import numba, numpy as np, torch
from numba import njit, prange

@njit(parallel=True)
def grow(a):
    for i in prange(a.size):
        a[i] += 1

def threads():
    return len(os.listdir("/proc/self/task"))

a = np.zeros(1000)
torch.set_num_threads(2)
numba.set_num_threads(2)
before = threads()
torch.ones(4_000_000).add_(1)
after_torch = threads()
grow(a)
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}
print(numba.threading_layer(), after_torch - before, threads() - after_torch, len(mapped))
"""


def python(script: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_NUM_THREADS": "2", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path))
    for variable in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@linux_only
def test_products_and_kernels_share_one_pool_of_threads(cache: Path):
    said = python(THREADS, **engine_environment())
    # One worker beside the main thread, made by torch; numba adds none, and one library serves.
    assert said == "omp 1 0 1"


@linux_only
def test_the_link_is_made_once_and_keeps_other_paths(cache, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/somewhere")
    first = engine_environment()
    assert engine_environment() == first
    folder, elsewhere = first["LD_LIBRARY_PATH"].split(os.pathsep)
    assert elsewhere == "/opt/somewhere"
    assert [link.name for link in Path(folder).iterdir()] == ["libgomp.so.1.0.0"]


@linux_only
def test_a_stale_link_is_replaced(cache: Path):
    folder = Path(engine_environment()["LD_LIBRARY_PATH"].split(os.pathsep)[0])
    link = folder / "libgomp.so.1.0.0"
    right = link.resolve()
    link.unlink()
    link.symlink_to(folder / "gone")
    engine_environment()
    assert link.resolve() == right


@linux_only
@pytest.mark.parametrize("variable", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_threads_wait_briefly_unless_the_user_said_how(cache, monkeypatch, variable):
    assert int(engine_environment()["GOMP_SPINCOUNT"]) <= 10_000
    monkeypatch.setenv(variable, "passive")
    assert "GOMP_SPINCOUNT" not in engine_environment()


def test_without_a_place_to_write_the_rest_still_holds(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("RIDGELINE_CACHE", str(blocked))
    assert "LD_LIBRARY_PATH" not in engine_environment()
    assert engine_environment()


def test_other_systems_get_a_pool_that_cannot_clash(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    found = engine_environment()
    assert found.pop("NUMBA_THREADING_LAYER") == "workqueue"
    assert found.keys() == {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"}


def test_it_needs_neither_torch_nor_numba():
    loaded = python(
        "import sys; from ridgeline.serving.engine.environment import engine_environment as e;"
        "e(); print(sorted({'torch', 'numba'} & set(sys.modules)))"
    )
    assert loaded == "[]"
