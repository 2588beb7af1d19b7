"""Reads every byte of versions again, and says which file is not what it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import ModelError
from ridgeline.serving.models.copying import Meter, Progress, hash_file, in_parallel, silent
from ridgeline.serving.models.layout import MANIFEST, Layout
from ridgeline.serving.models.manifest import File, Version


@dataclass(frozen=True, slots=True)
class Fault:
    """A file of a version that is not what it was; `sha256` is what its content should be."""

    digest: str
    path: str
    problem: str
    sha256: str = ""


def find_faults(at: Layout, digests: Sequence[str], progress: Progress = silent) -> list[Fault]:
    """What is wrong with the files that an engine would load. What versions share is read once."""
    faults: list[Fault] = []
    held: list[tuple[str, File, Path]] = []
    for digest in digests:
        version = _manifest(at, digest, faults)
        if version is not None:
            held += [(digest, file, at.files(digest) / file.path) for file in version.files]
    problems = _problems(held, progress)
    for digest, file, place in held:
        if place in problems:
            faults.append(Fault(digest, file.path, problems[place], file.sha256))
    return faults


def _manifest(at: Layout, digest: str, faults: list[Fault]) -> Version | None:
    try:
        return at.read(digest)
    except ModelError as error:
        faults.append(Fault(digest, MANIFEST, error.problem))
        return None


def _problems(held: Sequence[tuple[str, File, Path]], progress: Progress) -> dict[Path, str]:
    found = {place: problem for _, file, place in held if (problem := _at_a_glance(place, file))}
    same = {place.stat().st_ino: place for _, _, place in held if place not in found}
    meter = Meter(sum(place.stat().st_size for place in same.values()), progress)
    hashes = in_parallel(lambda place: _hash(place, meter), same.values(), meter)
    by_inode = dict(zip(same, hashes, strict=True))
    for _, file, place in held:
        if place not in found and by_inode[place.stat().st_ino] != file.sha256:
            found[place] = "its content has changed"
    return found


def _at_a_glance(place: Path, file: File) -> str:
    try:
        size = place.stat().st_size
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if size == file.bytes else f"has {size:,} bytes of {file.bytes:,}"


def _hash(place: Path, meter: Meter) -> str:
    """Empty where the disk does not give it back: that is no content either."""
    try:
        return hash_file(place, meter)
    except OSError:
        return ""
