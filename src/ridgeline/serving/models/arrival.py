"""How the bytes of a version come in: one process copies, the others wait and find it done.

Law: a version can be found only once all of it is on the disk, hashed on the way. Whatever goes
wrong before that leaves the store as it was.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ridgeline.errors import ModelError
from ridgeline.serving.models.copying import Copy, Progress, copy_files
from ridgeline.serving.models.layout import Layout
from ridgeline.serving.models.locks import locked
from ridgeline.serving.models.manifest import File, Version
from ridgeline.serving.models.room import Room
from ridgeline.serving.models.source import Source, SourceFile, chosen, open_source
from ridgeline.serving.models.whole import check_whole

_BRING_BACK = "bring it back, or add the model again from where it is now"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version that is to be made of what is at `source`, and what it is to be beside that."""

    source: str
    engine: Mapping[str, Any]
    name: str | None
    pin: bool
    skip: tuple[str, ...]


class Arrivals:
    """Copies into one store. `waiting` is told what another process copies at the moment."""

    def __init__(self, at: Layout, room: Room, waiting: Callable[[str], None]) -> None:
        self._at = at
        self._room = room
        self._waiting = waiting

    def add(self, wanted: Wanted, progress: Progress) -> Version:
        """The version of what is there now."""
        origin = open_source(wanted.source)
        key = hashlib.sha256(origin.where.encode()).hexdigest()
        with self._copying(f"source-{key}", origin.where), self._at.workspace() as work:
            files = self._copied(origin, wanted.skip, work, progress)
            version = Version(tuple(files), wanted.engine, origin.where, time.time_ns())
            return self._publish(version, work, name=wanted.name, pin=wanted.pin)

    def bring(self, version: Version, progress: Progress) -> None:
        """Its bytes are here afterwards. A lease keeps them here."""
        if self._is_here(version):
            return
        with self._copying(version.digest, version.id):
            if self._is_here(version):  # who had the lock has copied it
                return
            with self._at.workspace() as work:
                origin = open_source(version.source)
                self._copied(origin, (), work, progress, version)
                self._publish(version, work)

    def _is_here(self, version: Version) -> bool:
        with self._at.changing():  # nobody lets it leave while this looks
            return self._at.is_here(version)

    @contextmanager
    def _copying(self, key: str, what: str) -> Iterator[None]:
        """Only one process copies this at a time; others wait, and find it done."""
        lock = self._at.copy_lock(key)
        with locked(lock, waiting=lambda: self._waiting(what)):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)

    def _copied(
        self,
        origin: Source,
        skip: tuple[str, ...],
        work: Path,
        progress: Progress,
        known: Version | None = None,
    ) -> list[File]:
        """The source's files in the workspace; of a `known` version only its own."""
        expected = {} if known is None else {one.path: one.sha256 for one in known.files}
        listed = chosen(origin.files(), skip)
        files = [one for one in listed if known is None or one.path in expected]
        if missing := sorted(set(expected) - {one.path for one in files}):
            problem = f"{missing[0]} is not there any more"
            raise ModelError(problem, where=origin.where, remedy=_BRING_BACK)
        with self._at.changing():
            self._at.sweep_incoming()
            coming = self._coming(files, expected)
            self._room.fit(coming, self._at.limit_bytes())
            self._room.fits_disk(coming)
        present = _Blobs(self._at)
        copied = copy_files(Copy(origin, work / "files", present, expected), files, progress)
        if chosen(origin.files(), skip) != listed:
            problem = "changed while it was copied"
            raise ModelError(problem, where=origin.where, remedy="add it again once it is whole")
        check_whole(work / "files", [one.path for one in copied], where=origin.where)
        return copied

    def _coming(self, files: Sequence[SourceFile], expected: Mapping[str, str]) -> dict[str, int]:
        """What will be new, as far as that is known before the copy: hash, or path, and size."""
        sizes = self._at.blob_sizes()
        return {
            expected.get(one.path, one.path): one.bytes
            for one in files
            if one.path in expected or one.bytes not in sizes
        }

    def _publish(
        self, version: Version, work: Path, *, name: str | None = None, pin: bool = False
    ) -> Version:
        """What a workspace holds can be found from now on."""
        digest = version.digest
        with self._at.changing():
            try:
                self._room.fit(version.blobs, self._at.limit_bytes())
                before = self._at.read(digest)
                if before is not None:
                    version = replace(version, added_ns=before.added_ns)
                if before is not None and self._at.is_here(before):
                    self._at.note(version, pinned=pin)
                else:
                    for file in version.files:
                        self._at.share(work / "files" / file.path, file.sha256, file.bytes)
                    self._at.publish(version, work, pinned=pin)
                self._at.use_lock(digest).touch()
                if name is not None:
                    self._at.point(name, digest)
            except BaseException:
                self._at.sweep()
                raise
        return version


@dataclass(frozen=True, slots=True)
class _Blobs:
    """What a copy asks of the store while other processes change it."""

    at: Layout

    def link(self, sha256: str, size: int, to: Path) -> bool:
        """False also where it has just left, or is torn."""
        try:
            os.link(self.at.blob(sha256), to)
        except FileNotFoundError:
            return False
        if to.stat().st_size == size:
            return True
        to.unlink()
        return False

    def has_size(self, size: int) -> bool:
        return size in self.at.blob_sizes()
