"""Fixtures of the model store's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own, which is also this machine's."""
    monkeypatch.setenv("RIDGELINE_MODELS", str(tmp_path / "store"))
    return tmp_path / "store"
