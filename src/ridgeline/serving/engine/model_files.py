"""Opens a model: a GGUF file or a Hugging Face folder, both seen through one interface.

Law: opening is quick and needs no torch, so that the HTTP front and the engine process each open
the model themselves; only `tensors` reads weights. Whatever is wrong with the files is a
ModelError that says what to try (decisions/0006).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.gguf_model import GgufModel
from ridgeline.serving.engine.hf_folder import HfFolder
from ridgeline.serving.engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # torch takes seconds to import, and the front process lives without it
    import torch

    from ridgeline.serving.engine.weights import Progress


class ModelFiles(Protocol):
    """What a model's files say.

    `chat_template` is Jinja source, None where the model has none. `bos_token` and `eos_token`
    are texts, "" where there is none. `tokenizer` is built when first asked for.
    """

    path: Path
    architecture: Architecture
    chat_template: str | None

    @property
    def bos_token(self) -> str:
        """The text that begins a sequence."""
        ...

    @property
    def eos_token(self) -> str:
        """The text that ends a sequence."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; ModelError where its kind is not supported."""
        ...

    def tensors(
        self, dtype: str = "bf16", *, progress: "Progress | None" = None
    ) -> "dict[str, torch.Tensor]":
        """The weights in "bf16" or "fp32" by Hugging Face name, see `weights`."""
        ...


def open_model(path: Path, *, cache_dir: Path | None = None) -> ModelFiles:
    """Opens the GGUF file or Hugging Face folder at `path`.

    `cache_dir` keeps a GGUF's converted weights for the next start; None keeps none. Raises
    ModelError for what is missing, torn, or of a kind we cannot run.
    """
    path = path.expanduser()
    if path.is_dir():
        return HfFolder(_holding_a_model(path))
    if path.is_file():
        return GgufModel(path, cache_dir=cache_dir)
    raise ModelError(
        "there is no such file or folder",
        where=str(path),
        remedy="the path of a GGUF file, or of a folder with config.json and safetensors",
    )


def _holding_a_model(folder: Path) -> Path:
    """A folder of GGUF files only is a slip with an obvious remedy."""
    files = sorted(folder.glob("*.gguf"))
    if files and not (folder / "config.json").is_file():
        raise ModelError(
            "this folder has no config.json, but it has GGUF files",
            where=str(folder),
            remedy=str(files[0]),
        )
    return folder
