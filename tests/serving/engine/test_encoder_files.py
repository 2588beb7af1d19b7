import json
from pathlib import Path
from typing import Any

import pytest
from tiny_encoder import LONGEST, POSITIONS, write_encoder

from ridgeline.errors import ModelError
from ridgeline.serving.engine.encoder_files import is_encoder, read_shape, read_tokenizer


def test_an_encoder_is_told_from_what_generates(tmp_path: Path) -> None:
    assert not is_encoder(tmp_path)
    assert not is_encoder(tmp_path / "model.gguf")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert not is_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert is_encoder(tmp_path)


def test_the_longest_text_is_what_the_model_was_made_for_unless_told(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    shape = read_shape(folder)
    assert (shape.longest, shape.pooling, shape.normalizes) == (LONGEST, "mean", True)
    assert read_shape(folder, longest=POSITIONS).longest == POSITIONS
    with pytest.raises(ModelError, match="longer than the model's 24 positions"):
        read_shape(folder, longest=POSITIONS + 1)


def test_what_the_tokenizers_file_would_cut_is_not_cut(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(write_encoder(tmp_path))
    assert tokenizer.encode("The cats sat on a mat").ids == [2, 4, 5, 8, 6, 9, 10, 7, 3]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ],
)
def test_what_would_change_the_numbers_is_refused(
    tmp_path: Path, config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelError, match=problem):
        read_shape(write_encoder(tmp_path, **config))


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="max_tokens is not supported"):
        read_shape(write_encoder(tmp_path, pooling="max_tokens"))


def test_another_layer_is_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    dense = [{"type": "sentence_transformers.models.Dense"}]
    (folder / "modules.json").write_text(json.dumps(dense))
    with pytest.raises(ModelError, match="Dense layer"):
        read_shape(folder)


def test_torn_files_are_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="tokenizer cannot be read"):
        read_tokenizer(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        read_shape(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no config\.json"):
        read_shape(folder)
