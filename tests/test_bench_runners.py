import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="runs the engine's model")
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

from tiny_models import write_tiny

from ridgeline.serving.engine.model_files import open_model
from runners import blocks_for, logits_of, runner_of, table, tensors_of


@given(st.integers(1, 20), st.integers(1, 300))
def test_every_sequence_has_blocks_of_its_own_and_none_is_left_over(
    sequences: int, tokens: int
) -> None:
    taken = [block for at in range(sequences) for block in table(at, tokens)]
    assert sorted(taken) == list(range(blocks_for(sequences, tokens)))
    assert len(table(0, tokens)) * 16 >= tokens


@pytest.mark.parametrize(("dtype", "kv_dtype"), [("fp32", "auto"), ("bf16", "int8")])
def test_chunk_by_chunk_gives_the_logits_of_the_whole(
    tmp_path: Path, dtype: str, kv_dtype: str
) -> None:
    write_tiny(tmp_path / "llama", "llama")
    files = open_model(tmp_path / "llama")
    runner = runner_of(
        files.architecture, tensors_of(files, dtype), dtype, kv_dtype, blocks=8, threads=1
    )
    tokens = list(range(3, 43))
    whole = logits_of(runner, tokens, 0, len(tokens))
    assert whole.shape == (40, files.architecture.vocab)
    chunks = [logits_of(runner, tokens[at : at + 16], at, len(tokens[at : at + 16]))
              for at in (0, 16, 32)]  # fmt: skip
    np.testing.assert_allclose(np.concatenate(chunks), whole, atol=1e-5)
