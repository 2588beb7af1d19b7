import subprocess
import sys
from pathlib import Path

import pytest
from tests.serving.engine.default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.tiny_models import write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.model_files import open_model

FRONTS_USE = """
import sys
from pathlib import Path
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.template import ChatTemplate
from ridgeline.serving.engine.tokenizer import Detokenizer
files = open_model(Path(sys.argv[1]))
template = ChatTemplate(files.chat_template, bos_token=files.bos_token, eos_token=files.eos_token)
ids = files.tokenizer.encode(template.render([{"role": "user", "content": "hi"}]))
assert "hi" in Detokenizer(files.tokenizer).feed(ids)
assert files.architecture.vocab == 300
assert not {"torch", "transformers"} & sys.modules.keys(), "the front must stay light"
"""


@pytest.mark.parametrize("layout", ["hf", "gguf"])
def test_the_front_opens_a_model_without_torch(tmp_path: Path, layout: str) -> None:
    model = write_tiny(tmp_path / "model", layout=layout)
    subprocess.run([sys.executable, "-c", FRONTS_USE, model], check=True, timeout=60)


@pytest.mark.parametrize("layout", ["hf", "gguf"])
def test_both_kinds_say_the_same(tmp_path: Path, layout: str) -> None:
    files = open_model(write_tiny(tmp_path / "model", layout=layout))
    assert (files.bos_token, files.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert files.architecture.eos_ids == (2,)
    assert files.chat_template is not None
    assert files.tokenizer.encode("the cat<|im_end|>")[-1] == 2


@needs_smollm2
def test_smollm2_is_what_its_card_says() -> None:
    assert SMOLLM2 is not None
    assert open_model(SMOLLM2).architecture == Architecture(
        family="llama",
        layers=30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        ffn=1536,
        vocab=49152,
        context=8192,
        rope_theta=100_000.0,
        rms_eps=1e-5,
        tied_head=True,
        bos_id=1,
        eos_ids=(2,),
    )


def test_a_path_to_nothing_says_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file or folder") as caught:
        open_model(tmp_path / "nowhere")
    assert "GGUF" in caught.value.remedy


def test_a_folder_of_ggufs_has_the_file_for_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match="has GGUF files") as caught:
        open_model(tmp_path)
    assert caught.value.remedy == str(tmp_path / "model.gguf")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelError, match="not a GGUF file"):
        open_model(tmp_path / "model.bin")
