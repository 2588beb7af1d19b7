"""Where everything lies in a store, and how it is changed so that a kill harms nothing.

    blobs/<hash>                   each content once, read only
    versions/<digest>/manifest.json
                     /files/…      the model as an engine loads it: hard links to blobs
                     /pinned       if it is
    names/<name>                   the id that a name leads to
    incoming/<token>/              what is being copied, or thrown away
    locks/<digest>.use, .copy      held by those that use, or copy, a version
    lock                           held while anything of the above changes
    settings.json                  {"limit": "200GB"}

Law: nothing under `versions`, `blobs` and `names` is ever written in place. It is made under
`incoming` and moved, whole, by one rename; it goes by one rename too. What a killed process leaves
lies under `incoming`, or is a blob that no version has: `sweep` finds both.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from ridgeline.errors import ModelError
from ridgeline.serving.models.locks import if_free, locked
from ridgeline.serving.models.manifest import Version, read_manifest
from ridgeline.units import parse_bytes

MANIFEST = "manifest.json"


class Layout:
    """The places of one store. Those whose docstring says `changing` are called inside of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = root / "settings.json"
        self._blobs, self._versions = root / "blobs", root / "versions"
        self._names, self._incoming = root / "names", root / "incoming"
        self._locks = root / "locks"
        self._draft = root / "draft"

    def make(self) -> None:
        """The folders, where they are not there yet."""
        for folder in (self._blobs, self._versions, self._names, self._incoming, self._locks):
            folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Nobody else changes the store meanwhile. Short, and never inside of itself."""
        with locked(self.root / "lock"):
            yield

    def blob(self, sha256: str) -> Path:
        """The place of a content."""
        return self._blobs / sha256

    def version(self, digest: str) -> Path:
        """The folder of a version."""
        return self._versions / digest

    def files(self, digest: str) -> Path:
        """Its files, while they are here."""
        return self._versions / digest / "files"

    def pin(self, digest: str) -> Path:
        """The mark of one that is pinned."""
        return self._versions / digest / "pinned"

    def use_lock(self, digest: str) -> Path:
        """Held, shared, by all who use it. Changed at its last use."""
        return self._locks / f"{digest}.use"

    def copy_lock(self, key: str) -> Path:
        """Held by the one who copies."""
        return self._locks / f"{key}.copy"

    # What is there.

    def digests(self) -> list[str]:
        """Of all versions."""
        with suppress(FileNotFoundError):
            return sorted(one.name for one in self._versions.iterdir())
        return []

    def read(self, digest: str) -> Version | None:
        """A version; None where there is none, ModelError where its manifest was changed."""
        file = self.version(digest) / MANIFEST
        try:
            return read_manifest(file.read_text(encoding="utf-8"), digest, where=str(file))
        except FileNotFoundError:
            return None

    def is_here(self, version: Version) -> bool:
        """Whether every file of it is, as long as it must be."""
        files = self.files(version.digest)
        try:
            return all((files / one.path).stat().st_size == one.bytes for one in version.files)
        except OSError:
            return False

    def limit_bytes(self) -> int | None:
        """The most that the contents may take, as the settings have it."""
        try:
            told = json.loads(self.settings.read_text(encoding="utf-8"))["limit"]
            return None if told is None else parse_bytes(told)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"says no limit: {error}",
                where=str(self.settings),
                remedy='ridgeline models limit SIZE, or write {"limit": "200GB"}',
            ) from error

    def has_files(self, digest: str) -> bool:
        """Whether its files were brought here and did not leave; they may be torn by now."""
        return self.files(digest).exists()

    def names(self) -> dict[str, str]:
        """Name to digest."""
        with suppress(FileNotFoundError):
            found = sorted(self._names.iterdir())
            return {unquote(one.name): one.read_text("ascii").strip() for one in found}
        return {}

    def blob_sizes(self) -> set[int]:
        """The sizes of all contents."""
        return set(self._each_blob_size())

    def blob_bytes(self) -> int:
        """What all contents take, each once."""
        return sum(self._each_blob_size())

    def _each_blob_size(self) -> Iterator[int]:
        with suppress(FileNotFoundError):
            for blob in list(self._blobs.iterdir()):
                with suppress(FileNotFoundError):  # it leaves just now
                    yield blob.stat().st_size

    # How it changes.

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder of one's own under `incoming`; it is gone afterwards."""
        with ExitStack() as stack:
            with self.changing():
                folder = Path(tempfile.mkdtemp(dir=self._incoming))
                stack.callback(_remove, folder)
                stack.enter_context(locked(folder / "lock"))
            (folder / "files").mkdir()
            yield folder

    def share(self, file: Path, sha256: str, size: int) -> None:
        """`changing`: the content of `file` becomes a blob, or `file` a link to it."""
        blob = self.blob(sha256)
        if blob.exists() and blob.stat().st_size != size:
            blob.unlink()
        if not blob.exists():
            os.link(file, blob)
        elif not blob.samefile(file):
            file.unlink()
            os.link(blob, file)

    def publish(self, version: Version, workspace: Path, *, pinned: bool) -> None:
        """`changing`: the files of a workspace, all shared, become those of the version."""
        for folder, _, _ in os.walk(workspace / "files"):
            _flush(Path(folder))
        _flush(self._blobs)
        place = self.version(version.digest)
        if place.exists():
            self.discard(self.files(version.digest))
            (workspace / "files").rename(place / "files")
            self.note(version, pinned=pinned)
        else:
            made = workspace / "version"
            made.mkdir()
            (workspace / "files").rename(made / "files")
            self._write(made / MANIFEST, version.written())
            if pinned:
                (made / "pinned").touch()
            made.rename(place)
        _flush(place)
        _flush(place.parent)

    def note(self, version: Version, *, pinned: bool) -> None:
        """`changing`: the manifest of a version that there is, with what is beside its content."""
        self._write(self.version(version.digest) / MANIFEST, version.written())
        if pinned:
            self.pin(version.digest).touch()

    def point(self, name: str, digest: str) -> None:
        """`changing`: the name leads to that version from now on."""
        self._write(self._names / quote(name, safe=""), digest + "\n")

    def forget_name(self, name: str) -> None:
        """`changing`: the name leads nowhere."""
        (self._names / quote(name, safe="")).unlink(missing_ok=True)

    def discard(self, place: Path) -> None:
        """`changing`: out of the store by one rename, and then its bytes."""
        if place.exists():
            folder = Path(tempfile.mkdtemp(dir=self._incoming))
            place.rename(folder / "discarded")
            _remove(folder)

    def sweep(self) -> None:
        """`changing`: free what killed processes left, and unneeded blobs."""
        self.sweep_incoming()
        self._sweep_blobs()
        self._sweep_locks()

    def sweep_incoming(self) -> None:
        """`changing`: free what killed processes left half done."""
        self._draft.unlink(missing_ok=True)
        for folder in list(self._incoming.iterdir()):
            with if_free(folder / "lock") as is_free:
                if is_free:
                    _remove(folder)

    def _sweep_blobs(self) -> None:
        needed = set[str]()
        for digest in self.digests():
            # One whose manifest was changed by hand holds its files by its own links to them.
            with suppress(ModelError):
                version = self.read(digest)
                if version is not None and self.files(digest).exists():
                    needed |= set(version.blobs)
        for blob in list(self._blobs.iterdir()):
            if blob.name not in needed:
                blob.unlink()

    def _sweep_locks(self) -> None:
        """Those of versions that are gone, and of copies that nobody makes."""
        kept = {self.use_lock(digest) for digest in self.digests()}
        for lock in set(self._locks.iterdir()) - kept:
            with if_free(lock) as is_free:
                if is_free:
                    lock.unlink(missing_ok=True)

    def set(self, settings: str) -> None:
        """`changing`: the settings' text."""
        self._write(self.settings, settings)

    def _write(self, file: Path, text: str) -> None:
        """A small file, whole or not at all."""
        with self._draft.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        self._draft.replace(file)
        _flush(file.parent)


def _flush(folder: Path) -> None:
    """What was renamed or linked in it stays so through a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
