from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf.quants import dequantize
from tests.serving.engine.default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.tiny_models import (
    FAMILIES,
    gguf_tensor_name,
    interleaved,
    tiny_transformer,
    write_tiny,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from ridgeline.errors import ModelError
from ridgeline.serving.engine.gguf_weights import READABLE
from ridgeline.serving.engine.model_files import open_model

# Rows of whole superblocks, which the default tiny sizes are too narrow for.
WIDE = {"hidden_size": 256, "intermediate_size": 256}


@pytest.mark.parametrize("family", FAMILIES)
def test_fp32_weights_are_the_folders_bit_for_bit(tmp_path: Path, family: str) -> None:
    file = open_model(write_tiny(tmp_path / "f.gguf", family, layout="gguf"))
    folder = open_model(write_tiny(tmp_path / "hf", family))
    ours, theirs = file.tensors("fp32"), folder.tensors("fp32")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == torch.float32
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("kind", sorted(kind.name for kind in READABLE))
def test_values_are_those_of_the_gguf_package(tmp_path: Path, kind: str) -> None:
    file = write_tiny(tmp_path / "f.gguf", layout="gguf", quantization=kind, options=WIDE)
    ours = open_model(file).tensors("fp32")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    heads = {"attn_q": 4, "attn_k": 2}
    for name, tensor in ours.items():
        theirs = stored[gguf_tensor_name(name)]
        assert theirs.tensor_type.name == ("F32" if tensor.ndim == 1 else kind)
        values = dequantize(theirs.data, theirs.tensor_type).astype(np.float32)
        part = theirs.name.split(".")[-2]
        rows = tensor.numpy()
        np.testing.assert_array_equal(
            interleaved(rows, heads[part]) if part in heads else rows, values, err_msg=name
        )


def test_bf16_is_the_rounding_of_the_dequantised_values(tmp_path: Path) -> None:
    file = open_model(write_tiny(tmp_path / "f.gguf", layout="gguf", quantization="Q8_0"))
    exact = file.tensors("fp32")
    for name, tensor in file.tensors("bf16").items():
        assert torch.equal(tensor, exact[name].to(torch.bfloat16)), name


@pytest.mark.parametrize("kind", ["IQ2_XS", "TQ1_0"])
def test_an_untested_type_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    file = write_tiny(tmp_path / "f.gguf", layout="gguf", quantization=kind, options=WIDE)
    with pytest.raises(ModelError, match=f"stored as {kind}") as caught:
        open_model(file).tensors()
    assert "Q4_1" in caught.value.remedy


def test_a_type_nobody_knows_is_refused_by_number(tmp_path: Path) -> None:
    file = write_tiny(tmp_path / "f.gguf", layout="gguf")
    data = file.read_bytes()
    name = b"blk.0.attn_v.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8  # behind the two dimensions
    file.write_bytes(data[:at] + (250).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(ModelError, match="type number 250"):
        open_model(file).tensors()


def test_a_tensor_that_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    file = write_tiny(tmp_path / "f.gguf", layout="gguf")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    with pytest.raises(ModelError, match=r"missing: model\.layers\.1\.mlp\.up_proj\.weight"):
        open_model(file).tensors()


def test_progress_counts_up_to_all_bytes(tmp_path: Path) -> None:
    file = open_model(write_tiny(tmp_path / "f.gguf", layout="gguf"))
    seen: list[tuple[int, int]] = []
    tensors = file.tensors("bf16", progress=lambda done, total: seen.append((done, total)))
    total_bytes = sum(tensor.nbytes for tensor in tensors.values())
    assert seen == sorted(seen)
    assert len(seen) == len(tensors)
    assert seen[-1] == (total_bytes, total_bytes)


@pytest.mark.parametrize("family", ["llama", "llama-tied", "qwen2", "qwen3"])
def test_transformers_own_loader_reads_the_same_weights(tmp_path: Path, family: str) -> None:
    """The tests' writer is not its own judge: transformers undoes the permutation as well."""
    file = write_tiny(tmp_path / "f.gguf", family, layout="gguf")
    ours = open_model(file).tensors("fp32")
    theirs = _read_by_transformers(file, tiny_transformer(family))
    assert theirs.keys() == ours.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@needs_smollm2
@pytest.mark.slow
def test_smollm2s_weights_are_those_transformers_reads() -> None:
    assert SMOLLM2 is not None
    files = open_model(SMOLLM2)
    a = files.architecture
    ours = files.tensors("fp32")
    config = transformers.LlamaConfig(
        hidden_size=a.hidden,
        intermediate_size=a.ffn,
        num_hidden_layers=a.layers,
        num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads,
        vocab_size=a.vocab,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    theirs = _read_by_transformers(SMOLLM2, model)
    assert theirs.keys() == ours.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def _read_by_transformers(file: Path, model: Any) -> dict[str, torch.Tensor]:
    loaded = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)
    return {name: torch.as_tensor(tensor) for name, tensor in loaded["tensors"].items()}
