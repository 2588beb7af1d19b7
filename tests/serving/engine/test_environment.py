"""The engine process starts with torch held in check, and as the user said where he did."""

import subprocess
import sys

import pytest

from ridgeline.serving.engine.environment import engine_environment

CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"}


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", *CACHES):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("variable", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_threads_wait_briefly_unless_the_user_said_how(monkeypatch, variable):
    assert int(engine_environment()["GOMP_SPINCOUNT"]) <= 10_000
    monkeypatch.setenv(variable, "passive")
    assert "GOMP_SPINCOUNT" not in engine_environment()


@pytest.mark.parametrize("cache", sorted(CACHES))
def test_caches_are_small_unless_the_user_said_how(monkeypatch, cache):
    assert int(engine_environment()[cache]) <= 64
    monkeypatch.setenv(cache, "1024")
    assert engine_environment().keys() & CACHES == CACHES - {cache}


def test_it_needs_no_torch():
    script = (
        "import sys; from ridgeline.serving.engine.environment import engine_environment as e;"
        "e(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
