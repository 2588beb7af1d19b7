import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.serving.engine.tiny_models import CHAT_TEMPLATE, FAMILIES, tiny_transformer, write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.model_files import open_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("hf") / "tiny", "llama")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(made, tmp_path / "tiny")


def edit(file: Path, **changes: Any) -> None:
    value = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    tensors = open_model(write_tiny(tmp_path / "m", family, seed=3)).tensors("fp32")
    reference = tiny_transformer(family, seed=3).state_dict()
    assert set(reference) - set(tensors) <= {"lm_head.weight"}
    for name, tensor in tensors.items():
        assert torch.equal(tensor, reference[name]), name


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_stored_values_are_widened_or_rounded(
    tmp_path: Path, stored: torch.dtype, dtype: str
) -> None:
    tensors = open_model(write_tiny(tmp_path / "m", dtype=stored)).tensors(dtype)
    wanted = torch.float32 if dtype == "fp32" else torch.bfloat16
    for name, weight in tiny_transformer().state_dict().items():
        assert torch.equal(tensors[name], weight.to(stored).to(wanted)), name


def test_shards_are_one_model(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "m", max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    whole = tiny_transformer().state_dict()
    tensors = open_model(folder).tensors("fp32")
    assert tensors.keys() == whole.keys()
    assert all(torch.equal(tensors[name], whole[name]) for name in whole)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "m", max_shard_size="100KB")
    gone = sorted(folder.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelError, match=f"{gone.name} is missing"):
        open_model(folder)


def test_writing_to_a_mapped_tensor_leaves_the_file_alone(folder: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    open_model(folder).tensors("fp32")["model.norm.weight"].zero_()
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_torn_file_is_a_model_error_at_opening(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="torn") as caught:
        open_model(folder)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "neither model.safetensors nor"),
        ("tokenizer.json", "no tokenizer.json"),
    ],
)
def test_a_missing_file_is_named_with_a_remedy(folder: Path, gone: str, says: str) -> None:
    (folder / gone).unlink()
    with pytest.raises(ModelError, match=says) as caught:
        _ = open_model(folder).tokenizer
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
def test_a_config_that_is_no_json_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="JSON"):
        open_model(folder)


def test_a_tokenizer_that_is_none_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}', encoding="utf-8")
    with pytest.raises(ModelError, match="not a tokenizer"):
        _ = open_model(folder).tokenizer


def change_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    tensors: dict[str, torch.Tensor | None] = {**load_file(folder / "model.safetensors"), **changes}
    kept = {name: tensor.clone() for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model.norm.weight": None}, r"missing: model\.norm\.weight"),
        (
            {"model.layers.0.self_attn.o_proj.bias": torch.zeros(64)},
            r"does not use: .*o_proj\.bias",
        ),
        ({"model.norm.weight": torch.zeros(63)}, r"\[63\], wanted float \[64\]"),
        ({"model.norm.weight": torch.zeros(64, dtype=torch.int8)}, r"torch\.int8"),
    ],
)
def test_weights_that_do_not_fit_the_config_are_refused(
    folder: Path, changes: dict[str, torch.Tensor | None], says: str
) -> None:
    change_weights(folder, **changes)
    with pytest.raises(ModelError, match=says):
        open_model(folder).tensors()


def test_a_second_copy_of_a_tied_head_is_ignored(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "m", "llama-tied")
    change_weights(folder, **{"lm_head.weight": torch.zeros(300, 64)})
    assert "lm_head.weight" not in open_model(folder).tensors()


def test_another_dtype_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(ModelError, match="fp8"):
        open_model(folder).tensors("fp8")


def test_special_tokens_come_as_text_as_object_or_from_the_ids(folder: Path) -> None:
    files = open_model(folder)
    assert (files.bos_token, files.eos_token) == ("<|im_start|>", "<|im_end|>")
    edit(folder / "tokenizer_config.json", eos_token={"content": "<|endoftext|>"}, bos_token=None)
    files = open_model(folder)
    assert (files.bos_token, files.eos_token) == ("<|im_start|>", "<|endoftext|>")


def test_the_template_is_found_in_its_file_or_in_the_config(folder: Path) -> None:
    assert open_model(folder).chat_template == CHAT_TEMPLATE
    (folder / "chat_template.jinja").unlink()
    assert open_model(folder).chat_template is None
    edit(folder / "tokenizer_config.json", chat_template="one")
    assert open_model(folder).chat_template == "one"
    named = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    edit(folder / "tokenizer_config.json", chat_template=named)
    assert open_model(folder).chat_template == "three"


def test_progress_counts_up_to_all_bytes(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    tensors = open_model(folder).tensors("bf16", progress=lambda *step: seen.append(step))
    total_bytes = sum(tensor.nbytes for tensor in tensors.values())
    assert seen == sorted(seen)
    assert seen[-1] == (total_bytes, total_bytes)
