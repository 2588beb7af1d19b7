"""Small models on disk, as sources of the store."""

import json
import struct
from pathlib import Path


def gguf(path: Path, text: str = "weights") -> Path:
    """A file that begins as a GGUF does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + text.encode())
    return path


def safetensors(size: int = 64, fill: int = 0) -> bytes:
    """A whole file with one tensor of so many bytes."""
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes([fill]) * size


def folder(path: Path, *, size: int = 64, fill: int = 0, template: str = "{{ messages }}") -> Path:
    """A Hugging Face folder."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text("{}")
    (path / "chat_template.jinja").write_text(template)
    (path / "model.safetensors").write_bytes(safetensors(size, fill))
    return path


def blobs(root: Path) -> set[str]:
    """The contents that a store holds."""
    return {blob.name for blob in (root / "blobs").iterdir()}


def leftovers(root: Path) -> list[str]:
    """What lies about in a store that nobody uses."""
    return [one.name for one in (root / "incoming").iterdir()]
