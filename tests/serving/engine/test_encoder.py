"""The encoder computes what transformers computes, alone or beside others."""

from pathlib import Path

import pytest
import torch
from tiny_encoder import LONGEST, WORDS, write_encoder
from transformers import BertModel

from ridgeline.catalog.packaged import PACKAGED
from ridgeline.errors import ModelError
from ridgeline.serving.engine.encoder import Encoder
from ridgeline.serving.engine.encoder_files import read_shape, read_tokenizer

MINILM = PACKAGED["all-minilm-l6-v2"].path()
needs_minilm = pytest.mark.skipif(
    MINILM is None, reason=f"needs {PACKAGED['all-minilm-l6-v2'].install}"
)
TEXTS = [[2, 4, 5, 3], [2, 3], [2, *range(4, 11), 3], [7] * LONGEST]


def reference(folder: Path, ids: list[int], pooling: str = "mean") -> torch.Tensor:
    """One text at a time through transformers, pooled and normalised as the model's card says."""
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.inference_mode():
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
    pooled = hidden.mean(0) if pooling == "mean" else hidden[0]
    return pooled / pooled.norm()


def ours(folder: Path, texts: list[list[int]]) -> torch.Tensor:
    return Encoder.load(folder, read_shape(folder)).embed(texts)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_it_agrees_with_transformers(tmp_path: Path, pooling: str) -> None:
    folder = write_encoder(tmp_path, pooling=f"{pooling}_token" + "s" * (pooling == "mean"))
    told = ours(folder, TEXTS)
    for row, ids in enumerate(TEXTS):
        torch.testing.assert_close(told[row], reference(folder, ids, pooling), atol=1e-5, rtol=0)


def test_a_text_has_the_same_vector_in_any_company(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    together = ours(folder, TEXTS)
    for row, ids in enumerate(TEXTS):
        torch.testing.assert_close(together[row], ours(folder, [ids])[0], atol=1e-6, rtol=0)


@needs_minilm
def test_minilm_agrees_with_transformers() -> None:
    assert MINILM is not None
    tokenizer = read_tokenizer(MINILM)
    texts = ["A man eats pasta.", "naïve café — 東京", "the stock market fell " * 40]
    ids = [tokenizer.encode(text).ids for text in texts]
    told = ours(MINILM, ids)
    for row, one in enumerate(ids):
        torch.testing.assert_close(told[row], reference(MINILM, one), atol=1e-4, rtol=0)


def test_torn_or_strange_weights_are_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="cannot be read"):
        ours(folder, TEXTS)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, vocab_size=len(WORDS) + 1)
    with pytest.raises(ModelError, match="do not fit"):
        ours(folder, TEXTS)
