"""Trace files for tests."""

import gzip
import json
import lzma
from pathlib import Path

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,0
"""


def written(path: Path, text: str) -> Path:
    """A file of this text, packed as its name says."""
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return path


def jsonl(*rows: dict[str, object]) -> str:
    """Rows as lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(at_ms: float, blocks: list[int], **more: object) -> dict[str, object]:
    """A row of Mooncake's."""
    sizes = {"input_length": 600, "output_length": 5}
    return {"timestamp": at_ms, **sizes, "hash_ids": blocks, **more}
