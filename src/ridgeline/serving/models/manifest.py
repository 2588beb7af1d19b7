"""What a version is: its files by content and its engine arguments. Its id is the hash of these.

Where the files came from, and when, is written beside them and is no part of the id.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.errors import ModelError

#: To be raised whenever the same content would get another id.
FORMAT = 1
#: What a model of one file is called in a version: the name it came with is no content.
ONLY_FILE = "model.gguf"
PREFIX = "sha256:"


@dataclass(frozen=True, slots=True, order=True)
class File:
    """One file of a version. `path` is relative, with slashes."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Version:
    """An immutable version of a model. Two are equal where their content is.

    `engine` has the arguments that were given for its engine, as a spec has them. `source` is
    where its bytes can be copied from again, without any password.
    """

    files: tuple[File, ...]
    engine: Mapping[str, Any]
    source: str = field(compare=False, default="")
    added_ns: int = field(compare=False, default=0)

    @property
    def digest(self) -> str:
        """64 hex digits."""
        return hashlib.sha256(_canonical(self.content())).hexdigest()

    @property
    def id(self) -> str:
        """`sha256:` and the digest: what a spec may name."""
        return PREFIX + self.digest

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(file.bytes for file in self.files)

    @property
    def is_file(self) -> bool:
        """Whether an engine loads one file (a GGUF), and not a folder."""
        return [file.path for file in self.files] == [ONLY_FILE]

    @property
    def blobs(self) -> dict[str, int]:
        """Its contents, each once: hash and size."""
        return {file.sha256: file.bytes for file in self.files}

    def content(self) -> dict[str, Any]:
        """All that the id is made of."""
        files = [[file.path, file.bytes, file.sha256] for file in sorted(self.files)]
        return {"format": FORMAT, "files": files, "engine": dict(self.engine)}

    def written(self) -> str:
        """The manifest's text, which `read_manifest` reads."""
        beside = {"id": self.id, "source": self.source, "added_ns": self.added_ns}
        return json.dumps({**self.content(), **beside}, indent=1) + "\n"


def read_manifest(text: str, digest: str, *, where: str) -> Version:
    """The version of a manifest; ModelError where it is not the one whose id is `digest`."""
    try:
        told = json.loads(text)
        files = tuple(File(path, size, sha256) for path, size, sha256 in told["files"])
        version = Version(files, told["engine"], told["source"], told["added_ns"])
        is_right = told["format"] == FORMAT and version.digest == digest
    except (ValueError, TypeError, KeyError):
        is_right = False
    if not is_right:
        raise ModelError(
            "the manifest is not what it was when the version was added",
            where=where,
            remedy=f"ridgeline models rm {PREFIX}{digest[:12]}, and add the model again",
        )
    return version


def check_engine(engine: Mapping[str, Any]) -> None:
    """ModelError where arguments cannot be written down, and so have no hash."""
    try:
        _canonical(dict(engine))
    except (ValueError, TypeError) as error:
        problem = f"cannot be written as JSON: {error}"
        raise ModelError(problem, where="--engine", remedy="numbers, words, lists") from error


def _canonical(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
