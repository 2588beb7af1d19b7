"""A model as Hugging Face lays it out: a folder with config.json, *.safetensors, tokenizer.json.

Law: opening reads small files only (the front process opens a model too, without torch); weights
are read by `tensors`. Called by `model_files.open_model`.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from ridgeline.errors import ModelError
from ridgeline.serving.engine.hf_config import read_architecture
from ridgeline.serving.engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # torch takes seconds to import, and the front process lives without it
    import torch

    from ridgeline.serving.engine.weights import Progress

AGAIN = "download the model again"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


class HfFolder:
    """A Hugging Face folder; see `model_files.ModelFiles` for what each member promises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        config = _json(path / "config.json")
        generation = _json(path / "generation_config.json", optional=True)
        self._tokenizer_config = _json(path / "tokenizer_config.json", optional=True)
        self._file_of = _weight_files(path)
        self.architecture = read_architecture(
            config,
            generation,
            has_head="lm_head.weight" in self._file_of,
            where=str(path / "config.json"),
        )
        self.chat_template = self._read_template()

    def tensors(
        self, dtype: str = "bf16", *, progress: "Progress | None" = None
    ) -> "dict[str, torch.Tensor]":
        """The weights by Hugging Face name. Those stored in `dtype` are mapped, not copied."""
        from ridgeline.serving.engine.weights import load_safetensors

        return load_safetensors(
            self._file_of, self.architecture, dtype, progress=progress, where=str(self.path)
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """From tokenizer.json."""
        file = self.path / "tokenizer.json"
        if not file.is_file():
            raise ModelError(
                "there is no tokenizer.json",
                where=str(self.path),
                remedy="save it with transformers: "
                "AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)",
            )
        return Tokenizer.from_json(
            file.read_text(encoding="utf-8"),
            bos_id=self.architecture.bos_id,
            adds_bos=self._tokenizer_config.get("add_bos_token"),
            where=str(file),
        )

    @property
    def bos_token(self) -> str:
        """The text that begins a sequence, "" where the model has none."""
        ids = () if self.architecture.bos_id is None else (self.architecture.bos_id,)
        return self._special("bos_token", ids)

    @property
    def eos_token(self) -> str:
        """The text that ends a sequence, "" where the model has none."""
        return self._special("eos_token", self.architecture.eos_ids)

    def _special(self, field: str, ids: tuple[int, ...]) -> str:
        """tokenizer_config.json has the text, or an object with it, or nothing."""
        value = self._tokenizer_config.get(field)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            return value
        return self.tokenizer.token_text(ids[0]) if ids else ""

    def _read_template(self) -> str | None:
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        value = self._tokenizer_config.get("chat_template")
        if isinstance(value, list):  # several named templates
            named = {item.get("name"): item.get("template") for item in value}
            value = named.get("default")
        return value if isinstance(value, str) else None


def _weight_files(path: Path) -> dict[str, Path]:
    """Which file holds which tensor, from the index or from the one file's own header."""
    if (path / INDEX).is_file():
        placed = _json(path / INDEX).get("weight_map", {})
        missing = sorted({name for name in placed.values() if not (path / name).is_file()})
        if missing:
            raise ModelError(f"{missing[0]} is missing", where=str(path), remedy=AGAIN)
        return {tensor: path / name for tensor, name in placed.items()}
    file = path / WEIGHTS
    if not file.is_file():
        raise ModelError(
            f"there is neither {WEIGHTS} nor {INDEX}",
            where=str(path),
            remedy="weights saved as safetensors (save_pretrained does it), or a GGUF file",
        )
    try:
        with safe_open(file, framework="numpy") as opened:
            return dict.fromkeys(opened.keys(), file)
    except SafetensorError as error:
        raise ModelError(f"torn weights: {error}", where=str(file), remedy=AGAIN) from error


def _json(file: Path, *, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file; {} where an optional one is absent."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if optional:
            return {}
        raise ModelError(
            f"there is no {file.name}",
            where=str(file.parent),
            remedy="a folder with config.json, safetensors weights and tokenizer.json, or a GGUF",
        ) from error
    except ValueError as error:
        raise ModelError(f"not JSON: {error}", where=str(file), remedy=AGAIN) from error
    if not isinstance(value, dict):
        raise ModelError("not a JSON object", where=str(file), remedy=AGAIN)
    return value
