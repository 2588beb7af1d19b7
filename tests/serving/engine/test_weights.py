from pathlib import Path

import pytest
import torch
from tests.serving.engine.tiny_models import FAMILIES, tiny_transformer, write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.weights import (
    check_names,
    expected_shapes,
    model_bytes,
    torch_dtype,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_expected_shapes_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    architecture = open_model(write_tiny(tmp_path / "m", family)).architecture
    theirs = {name: tuple(w.shape) for name, w in tiny_transformer(family).state_dict().items()}
    if architecture.tied_head:
        theirs.pop("lm_head.weight")
    shapes = expected_shapes(architecture)
    assert shapes == theirs
    elements = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert model_bytes(architecture, torch.bfloat16) == 2 * elements


def test_old_frequencies_are_ignored_and_strangers_are_not(tmp_path: Path) -> None:
    architecture = open_model(write_tiny(tmp_path / "m")).architecture
    names = list(expected_shapes(architecture))
    check_names([*names, "model.layers.0.self_attn.rotary_emb.inv_freq"], architecture, where="f")
    with pytest.raises(ModelError, match=r"does not use: model\.mtp"):
        check_names([*names, "model.mtp"], architecture, where="f")
    with pytest.raises(ModelError, match=r"missing: .*\(2 in all\)"):
        check_names(names[2:], architecture, where="f")


def test_a_dtype_has_one_word() -> None:
    assert torch_dtype("bf16") is torch.bfloat16
    with pytest.raises(ModelError, match="int8"):
        torch_dtype("int8")
