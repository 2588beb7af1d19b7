"""Where a model's files are copied from: a folder or a file here, or anything fsspec can reach.

Law: a source only lists and reads. What it lists has relative paths that stay inside, and a stamp
that is another one once a file has changed. `where` can be written down: it has no password.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from ridgeline.catalog.packaged import PACKAGED, find_model
from ridgeline.errors import MissingExtraError, ModelError
from ridgeline.serving.models.manifest import ONLY_FILE

CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that can be copied. `stamp` tells one state of it from another."""

    path: str
    bytes: int
    stamp: str


class Source(Protocol):
    """A model's files, wherever they are."""

    @property
    def where(self) -> str:
        """What names it in a manifest and in errors."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether reading it twice costs nothing much."""
        ...

    def files(self) -> list[SourceFile]:
        """What there is now, by path. ModelError where that is no model."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's content. ModelError where it cannot be read."""
        ...


def open_source(named: str) -> Source:
    """A packaged model's name, the path of a GGUF or of a folder, or a URL."""
    if "://" in named:
        return _Remote(named)
    path = find_model(named)
    return _Local(path, named if named in PACKAGED else str(path))


def chosen(files: list[SourceFile], skip: tuple[str, ...]) -> list[SourceFile]:
    """Those that no pattern skips: `original/*`, `*.bin`."""
    return [one for one in files if not any(fnmatch(one.path, pattern) for pattern in skip)]


def without_secrets(url: str) -> str:
    """A URL as it may be written down: user, password and query can hold what must not be."""
    return "::".join(_bare(part) for part in url.split("::"))


def _bare(url: str) -> str:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class _Local:
    is_local = True

    def __init__(self, root: Path, where: str) -> None:
        self._root = root
        self.where = where

    def files(self) -> list[SourceFile]:
        if self._root.is_dir():
            found = [self._seen(path) for path in sorted(self._walk())]
        else:
            found = [SourceFile(ONLY_FILE, *self._state(self._root))]
        return _checked(found, self.where, is_folder=self._root.is_dir())

    def chunks(self, path: str) -> Iterator[bytes]:
        place = self._root / path if self._root.is_dir() else self._root
        with _reading(str(place), self.where):
            file = place.open("rb", buffering=0)
        with file:
            while True:
                with _reading(str(place), self.where):
                    chunk = file.read(CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk

    def _walk(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in folders:
                if (link := Path(folder, name)).is_symlink():
                    problem = "is a link to a folder, which is not followed"
                    raise ModelError(problem, where=str(link), remedy="a folder in its place")
            yield from (Path(folder, name) for name in names if not name.startswith("."))

    def _seen(self, path: Path) -> SourceFile:
        return SourceFile(path.relative_to(self._root).as_posix(), *self._state(path))

    def _state(self, path: Path) -> tuple[int, str]:
        with _reading(str(path), self.where):
            seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            problem = "is neither a file nor a folder"
            raise ModelError(problem, where=str(path), remedy="take it away")
        return seen.st_size, f"{seen.st_ino} {seen.st_mtime_ns}"


class _Remote:
    is_local = False

    def __init__(self, url: str) -> None:
        self.where = without_secrets(url)
        self._url = url
        fsspec = _fsspec()
        with _reading(url, self.where):
            self._fs, self._root = fsspec.core.url_to_fs(url)
        # Not every web server knows ranges; one stream is all that a copy needs.
        self._how = {"block_size": 0} if "http" in self._fs.protocol else {}
        outermost = next(part for part in url.split("::") if "://" in part)
        self._is_folder = not outermost.partition("?")[0].endswith(".gguf")

    def files(self) -> list[SourceFile]:
        with _reading(self._url, self.where):
            self._fs.invalidate_cache()
            if not self._is_folder:
                found = [self._seen(ONLY_FILE, self._fs.info(self._root))]
            else:
                listed = self._fs.find(self._root, detail=True).items()
                found = [self._seen(self._inside(name), info) for name, info in listed]
        shown = [one for one in found if not any(p[:1] == "." for p in one.path.split("/"))]
        return _checked(shown, self.where, is_folder=self._is_folder)

    def chunks(self, path: str) -> Iterator[bytes]:
        place = f"{self._root.rstrip('/')}/{path}" if self._is_folder else self._root
        with _reading(self._url, self.where):
            file = self._fs.open(place, "rb", **self._how)
        with file:
            while True:
                with _reading(self._url, self.where):
                    chunk = file.read(CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk

    def _inside(self, name: str) -> str:
        return name.removeprefix(self._root.rstrip("/")).lstrip("/")

    def _seen(self, path: str, info: dict[str, Any]) -> SourceFile:
        if info.get("size") is None:
            raise ModelError(f"it is not told how long {path} is", where=self.where)
        return SourceFile(path, int(info["size"]), str(sorted(info.items(), key=str)))


def _checked(files: list[SourceFile], where: str, *, is_folder: bool) -> list[SourceFile]:
    """The files, if they look like a model: a slip must not copy somebody's home."""
    paths = {one.path for one in files}
    for path in paths:
        if not path or ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
            raise ModelError(f"{path!r} is no path inside of it", where=where)
    if is_folder and "config.json" not in paths:
        ggufs = sorted(path for path in paths if path.endswith(".gguf"))
        hint = f"one file of it: {where.rstrip('/')}/{ggufs[0]}" if ggufs else "a model's folder"
        raise ModelError("this folder has no config.json", where=where, remedy=hint)
    return sorted(files, key=lambda one: one.path)


def _fsspec() -> Any:
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a model from a URL needs the part [models] of Ridgeline (fsspec is not installed)",
            remedy="pip install 'ridgeline[models]', in a checkout pip install '.[models]'",
        ) from error
    return fsspec


@contextmanager
def _reading(place: str, where: str) -> Iterator[None]:
    """Errors of reading as ours; never with what `where` leaves out of a URL."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # each filesystem of fsspec raises what its own client raises
        is_open = place == where or "://" not in place
        problem = str(getattr(error, "strerror", None) or error) if is_open else ""
        if isinstance(error, FileNotFoundError):
            problem = "there is nothing of that name"
        told = f"cannot be read: {problem or type(error).__name__}"
        raise ModelError(told, where=where if "://" in place else place) from error
