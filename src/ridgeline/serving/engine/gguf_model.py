"""A model in one GGUF file, as llama.cpp's tools write it.

Law: as for a Hugging Face folder, opening reads the head only, without torch; `tensors`
dequantises, once if there is a cache. Called by `model_files.open_model`.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.serving.engine.gguf_architecture import read_architecture
from ridgeline.serving.engine.gguf_format import read_head
from ridgeline.serving.engine.gguf_tokenizer import build_tokenizer
from ridgeline.serving.engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # torch takes seconds to import, and the front process lives without it
    import torch

    from ridgeline.serving.engine.weights import Progress


class GgufModel:
    """A GGUF file; see `model_files.ModelFiles` for what each member promises."""

    def __init__(self, path: Path, *, cache_dir: Path | None) -> None:
        self.path = path
        self._cache_dir = cache_dir
        self._head = read_head(path)
        self.architecture = read_architecture(self._head)
        self.chat_template: str | None = self._head.metadata.get("tokenizer.chat_template")

    def tensors(
        self, dtype: str = "bf16", *, progress: "Progress | None" = None
    ) -> "dict[str, torch.Tensor]":
        """The weights by Hugging Face name, mapped from the cache where there is one.

        A cache that cannot be written is a RuntimeWarning, and the weights then live in memory.
        """
        from ridgeline.serving.engine.gguf_weights import load_gguf

        return load_gguf(
            self._head, self.architecture, dtype, cache_dir=self._cache_dir, progress=progress
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """From the vocabulary in the file; ModelError for a kind that is not supported."""
        return build_tokenizer(self._head)

    @property
    def bos_token(self) -> str:
        """The text that begins a sequence, "" where the model has none."""
        return self._token_text(self.architecture.bos_id)

    @property
    def eos_token(self) -> str:
        """The text that ends a sequence, "" where the model has none."""
        return self._token_text(next(iter(self.architecture.eos_ids), None))

    def _token_text(self, token_id: int | None) -> str:
        """Straight from the list in the file: special tokens are stored as they are read."""
        tokens = self._head.metadata.get("tokenizer.ggml.tokens") or []
        return tokens[token_id] if token_id is not None and token_id < len(tokens) else ""
