"""The model store of a machine: versions are added, found, loaded, checked, and thrown away.

Law: what an id gives is whole and never changes, whatever is killed at whatever moment, and
however many processes do the same at once: they copy once. With a limit the store is a cache: a
version that is not used leaves, its manifest stays, and whoever asks for it again gets it copied
from where it came from, checked against its hashes. docs/guide/models.md.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ridgeline.errors import ModelError
from ridgeline.serving.models.arrival import Arrivals, Wanted
from ridgeline.serving.models.check import Fault, find_faults
from ridgeline.serving.models.copying import Progress, silent
from ridgeline.serving.models.layout import Layout
from ridgeline.serving.models.locks import if_free, locked
from ridgeline.serving.models.manifest import ONLY_FILE, PREFIX, Version, check_engine
from ridgeline.serving.models.references import check_name, parse
from ridgeline.serving.models.room import MORE_ROOM, Room
from ridgeline.serving.models.source import open_source
from ridgeline.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A version with what is beside its content. `is_here`: its bytes are on this machine."""

    version: Version
    names: tuple[str, ...]
    is_here: bool
    is_pinned: bool
    is_used: bool
    used_ns: int


@dataclass(frozen=True, slots=True)
class Removed:
    """What `remove` took away: names, and with `is_gone` the version too."""

    digest: str
    names: tuple[str, ...]
    freed_bytes: int
    is_gone: bool


def nobody_waits(version: str) -> None:
    """For those who need not say that another process copies."""


class ModelStore:
    """The store under `root`. `waiting` is told what another process copies at the moment.

    Every method may be called from any process and thread at any time. ModelError says what cannot
    be done, and then nothing has changed.
    """

    def __init__(self, root: Path, *, waiting: Callable[[str], None] = nobody_waits) -> None:
        self._at = Layout(root)
        self._room = Room(self._at)
        self._arrivals = Arrivals(self._at, self._room, waiting)

    # Look.

    def find(self, reference: str) -> Version:
        """The version that an id, the beginning of one, or a name means."""
        digest = self._digest(reference)
        version = self._at.read(digest)
        if version is None:  # removed just now
            raise _unknown(reference, self._at.names())
        return version

    def versions(self) -> list[Stored]:
        """All, the one that was used last first."""
        with self._told():
            self._at.make()
            with self._at.changing():
                found = [(one, self._at.read(one)) for one in self._at.digests()]
                stored = [self._stored(one, version) for one, version in found if version]
        return sorted(stored, key=lambda one: (-one.used_ns, one.version.digest))

    def bytes(self) -> int:
        """What all contents take on the disk, each counted once."""
        return self._at.blob_bytes()

    @property
    def limit_bytes(self) -> int | None:
        """The most that the contents may take; None for as much as the disk has."""
        return self._at.limit_bytes()

    # Add and load.

    def add(
        self,
        source: str,
        *,
        engine: Mapping[str, Any] | None = None,
        name: str | None = None,
        pin: bool = False,
        skip: Sequence[str] = (),
        progress: Progress = silent,
    ) -> Version:
        """A version of what is at `source` now; the same one where it is here already.

        `source` is a packaged model, a GGUF, a folder or a URL; `skip` has patterns of files to
        leave out. `name` leads to the version from then on.
        """
        given = dict(engine or {})
        check_engine(given)
        if name is not None:
            check_name(name)
        with self._told():
            self._at.make()
            return self._arrivals.add(Wanted(source, given, name, pin, tuple(skip)), progress)

    def resolve(self, reference: str, *, progress: Progress = silent) -> Path:
        """The GGUF file or folder that an engine loads; its bytes are copied where they are gone.

        It stays as long as nobody removes it: hold `in_use` to be sure.
        """
        with self.in_use(reference, progress=progress) as path:
            return path

    @contextmanager
    def in_use(self, reference: str, *, progress: Progress = silent) -> Iterator[Path]:
        """As `resolve`; inside, the version neither leaves nor can be removed.

        That ends with this process, too, however it ends.
        """
        digest = self.find(reference).digest
        with ExitStack() as lease:
            with self._told():
                self._at.make()
                lock = self._at.use_lock(digest)
                lease.enter_context(locked(lock, shared=True))
                version = self.find(PREFIX + digest)  # it may have been removed meanwhile
                self._arrivals.bring(version, progress)
                os.utime(lock)
            files = self._at.files(digest)
            yield files / ONLY_FILE if version.is_file else files

    # Change.

    def name(self, reference: str, name: str) -> Version:
        """From now on `name` leads to that version."""
        check_name(name)
        with self._changing(reference) as digest:
            self._at.point(name, digest)
        return self.find(digest)

    def pin(self, reference: str, *, is_pinned: bool = True) -> Version:
        """From now on it stays here, whatever the limit, and is not removed; or no longer."""
        with self._changing(reference) as digest:
            if is_pinned:
                self._at.pin(digest).touch()
            else:
                self._at.pin(digest).unlink(missing_ok=True)
        return self.find(digest)

    def limit(self, size: str | None) -> None:
        """From now on the contents take at most so much, as `200GB`; None: no limit.

        What is too much leaves at once; ModelError where that cannot be.
        """
        wanted = None if size is None else _size(size)
        with self._told():
            self._at.make()
            with self._at.changing():
                self._room.fit({}, wanted)
                self._at.set(json.dumps({"limit": size}) + "\n")

    def remove(self, reference: str) -> Removed:
        """A name is taken away, and with the last name of a version the version itself.

        An id removes the version with all its names. What is pinned or in use is refused with a
        ModelError.
        """
        named = parse(reference).name
        with self._changing(reference) as digest:
            names = self._names_of(digest)
            if named and names != (named,):
                self._at.forget_name(named)
                return Removed(digest, (named,), freed_bytes=0, is_gone=False)
            with self._may_go(digest):
                before = self._at.blob_bytes()
                for name in names:
                    self._at.forget_name(name)
                self._at.discard(self._at.version(digest))
                self._at.sweep()
                self._at.use_lock(digest).unlink(missing_ok=True)
        return Removed(digest, names, before - self._at.blob_bytes(), is_gone=True)

    def verify(
        self, references: Sequence[str] = (), *, progress: Progress = silent
    ) -> tuple[list[str], list[Fault]]:
        """Every byte of these versions is read again, of all that are here by default.

        The digests of what was read, and what is wrong with it.
        """
        wanted = [self._digest(one) for one in references] or self._at.digests()
        with ExitStack() as leases:
            with self._told():
                self._at.make()
                for digest in wanted:
                    lock = self._at.use_lock(digest)
                    leases.enter_context(locked(lock, shared=True))
            read = [digest for digest in wanted if self._at.has_files(digest)]
            if references and read != wanted:
                (gone, *_) = set(wanted) - set(read)
                problem = "its bytes are not here: they are checked when they are copied again"
                raise ModelError(problem, where=PREFIX + gone[:12])
            return read, find_faults(self._at, read, progress)

    def repair(self, faults: Sequence[Fault], *, progress: Progress = silent) -> None:
        """Copy what is bad again from where it came from.

        Refused where a version is in use, or its source cannot be read.
        """
        versions = {one.digest: self.find(PREFIX + one.digest) for one in faults}
        for version in versions.values():
            open_source(version.source).files()
        with self._told(), self._at.changing(), ExitStack() as unused:
            for digest in versions:
                unused.enter_context(self._may_go(digest, even_pinned=True))
            for fault in faults:
                self._at.blob(fault.sha256).unlink(missing_ok=True)
            for digest in versions:
                self._at.discard(self._at.files(digest))
        for version in versions.values():
            self.resolve(version.id, progress=progress)

    # How.

    def _digest(self, reference: str) -> str:
        meant = parse(reference)
        names = self._at.names()
        if meant.name:
            if meant.name not in names:
                raise _unknown(reference, names)
            return names[meant.name]
        found = [one for one in self._at.digests() if one.startswith(meant.digits)]
        if not found:
            raise _unknown(reference, names)
        if len(found) > 1:
            begins = ", ".join(PREFIX + one[:16] for one in found)
            raise ModelError("several versions begin so", where=reference, remedy=begins)
        return found[0]

    @contextmanager
    def _changing(self, reference: str) -> Iterator[str]:
        """Nobody else changes the store, in which the reference means this digest."""
        with self._told():
            self._at.make()
            with self._at.changing():
                yield self._digest(reference)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the disk refuses, as an error for people."""
        try:
            yield
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            problem = error.strerror or str(error)
            raise ModelError(
                "the disk is full; nothing was added" if is_full else f"cannot be used: {problem}",
                where=str(self._at.root),
                remedy=MORE_ROOM if is_full else "RIDGELINE_MODELS=… names another folder",
            ) from error

    @contextmanager
    def _may_go(self, digest: str, *, even_pinned: bool = False) -> Iterator[None]:
        """Inside `changing`: ModelError where it is pinned or used; nobody begins to use it."""
        short = PREFIX + digest[:12]
        if self._at.pin(digest).exists() and not even_pinned:
            remedy = f"ridgeline models unpin {short}"
            raise ModelError("is pinned", where=short, remedy=remedy)
        with if_free(self._at.use_lock(digest)) as is_free:
            if not is_free:
                remedy = "stop the replicas that serve it (ridgeline status), then again"
                raise ModelError("is in use", where=short, remedy=remedy)
            yield

    # One version.

    def _stored(self, digest: str, version: Version) -> Stored:
        return Stored(
            version,
            self._names_of(digest),
            self._at.is_here(version),
            self._at.pin(digest).exists(),
            self._room.is_used(digest),
            self._room.used_ns(version),
        )

    def _names_of(self, digest: str) -> tuple[str, ...]:
        return tuple(name for name, led in self._at.names().items() if led == digest)


def _unknown(reference: str, names: Mapping[str, str]) -> ModelError:
    near = get_close_matches(reference.removeprefix("store:"), names, 1)
    return ModelError(
        f"there is no version {reference!r} in the store",
        where="model",
        remedy=f"{near[0]} (nearest), or ridgeline models list"
        if near
        else "ridgeline models list",
    )


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ModelError(str(error), where="limit", remedy="200GB, or none") from error
