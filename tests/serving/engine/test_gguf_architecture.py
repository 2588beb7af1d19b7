import math
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.engine.tiny_models import FAMILIES, write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import RopeScaling
from ridgeline.serving.engine.gguf_architecture import llama3_divisors, scaling_of
from ridgeline.serving.engine.model_files import open_model

ABOUT = {  # what a GGUF of each family says about itself besides the sizes
    "llama": {"tied_head": False},
    "llama-tied": {"tied_head": True},
    "qwen2": {"qkv_bias": True, "family": "qwen2"},
    "qwen3": {"qk_norm": True, "family": "qwen3", "qkv_bias": False},
    "mistral": {"family": "llama"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gguf_and_a_folder_of_one_model_have_one_shape(tmp_path: Path, family: str) -> None:
    folder = open_model(write_tiny(tmp_path / "hf", family)).architecture
    file = open_model(write_tiny(tmp_path / "f.gguf", family, layout="gguf")).architecture
    same_family = {"mistral": "llama"}.get(folder.family, folder.family)
    for name in folder.__dataclass_fields__:
        ours, theirs = getattr(file, name), getattr(folder, name)
        assert ours == (same_family if name == "family" else theirs), name
    for name, value in ABOUT.get(family, {}).items():
        assert getattr(file, name) == value


@given(
    factor=st.sampled_from([2.0, 8.0, 32.0]),
    high=st.sampled_from([2.0, 4.0, 6.5]),
    original=st.integers(1000, 20_000),
    theta=st.sampled_from([1e4, 5e5, 1e6]),
)
def test_llama3_scaling_is_told_back_from_its_divisors(
    factor: float, high: float, original: int, theta: float
) -> None:
    divisors = llama3_divisors(RopeScaling(factor, 1.0, high, original), theta, 64)
    found = scaling_of(divisors, theta)
    assert found is not None
    for ours, theirs in zip(llama3_divisors(found, theta, 64), divisors, strict=True):
        assert math.isclose(ours, theirs, rel_tol=1e-4)


def test_llama_3_2s_own_scaling_is_found_exactly() -> None:
    scaling = RopeScaling(32.0, 1.0, 4.0, 8192)
    assert scaling_of(llama3_divisors(scaling, 5e5, 32), 5e5) == scaling


@pytest.mark.parametrize("divisors", [[1.0, 3.0, 2.0, 8.0], [8.0, 4.0, 2.0, 1.0], [1.0, 1.1, 9.9]])
def test_divisors_of_another_rule_are_not_taken_for_llama3s(divisors: list[float]) -> None:
    assert scaling_of(divisors, 1e4) is None


def write_altered(
    path: Path, alter: Callable[[gguf.GGUFWriter], None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A tiny GGUF into which `alter` wrote something more, over what is there."""
    finish = gguf.GGUFWriter.write_header_to_file

    def finish_altered(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop("llama.rope.dimension_count", None)
        alter(writer)
        finish(writer)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", finish_altered)
    return write_tiny(path, "llama", layout="gguf")


def set_value(name: str, value: object, kind: gguf.GGUFValueType) -> Callable[..., None]:
    def alter(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0][name] = gguf.gguf_writer.GGUFValue(value, kind, gguf.GGUFValueType.UINT32)

    return alter


U32, STRING, ARRAY = (gguf.GGUFValueType[name] for name in ("UINT32", "STRING", "ARRAY"))


@pytest.mark.parametrize(
    ("name", "value", "kind", "says"),
    [
        ("general.architecture", "gemma3", STRING, "gemma3.*not one we can run"),
        ("split.count", 3, U32, "split into several"),
        ("llama.expert_count", 8, U32, "mixtures of experts"),
        ("llama.rope.scaling.type", "yarn", STRING, "rotary scaling 'yarn'"),
        ("llama.rope.dimension_count", 8, U32, "dimension_count is 8"),
        ("llama.attention.head_count", [4, 2], ARRAY, "head_count is None"),
        ("llama.block_count", 0, U32, "block_count is 0"),
        ("llama.attention.value_length", 8, U32, "value_length is 8"),
    ],
)
def test_what_we_cannot_run_is_refused_with_a_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
    kind: gguf.GGUFValueType,
    says: str,
) -> None:
    file = write_altered(tmp_path / "f.gguf", set_value(name, value, kind), monkeypatch)
    with pytest.raises(ModelError, match=says) as caught:
        open_model(file)
    assert caught.value.remedy


def test_a_sliding_window_cuts_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alter = set_value("llama.attention.sliding_window", 128, U32)
    file = write_altered(tmp_path / "f.gguf", alter, monkeypatch)
    assert open_model(file).architecture.context == 128


def test_every_declared_end_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alter = set_value("tokenizer.ggml.eot_token_id", 0, U32)
    file = write_altered(tmp_path / "f.gguf", alter, monkeypatch)
    assert open_model(file).architecture.eos_ids == (2, 0)
