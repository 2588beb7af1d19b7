"""Whether there is room for what comes, within the limit and on the disk; who leaves for it.

All of this is asked inside `Layout.changing`: a lease is taken before its holder looks whether the
version is here, under the same lock, so whoever is seen as unused here finds out that it has left.
"""

import shutil
from collections.abc import Mapping

from ridgeline.errors import ModelError
from ridgeline.serving.models.eviction import Kept, evict
from ridgeline.serving.models.layout import Layout
from ridgeline.serving.models.locks import if_free
from ridgeline.serving.models.manifest import Version

MORE_ROOM = (
    "ridgeline models rm what is not needed, a larger `ridgeline models limit`, or "
    "RIDGELINE_MODELS=… on a larger disk"
)


class Room:
    """The room of one store."""

    def __init__(self, at: Layout) -> None:
        self._at = at

    def fit(self, coming: Mapping[str, int], limit_bytes: int | None) -> None:
        """Inside `changing`: versions leave until all is within the limit."""
        if limit_bytes is None:
            return
        decision = evict(self._kept(), coming, limit_bytes)
        if not decision.fits:
            problem = f"the store's limit is too small: {decision.reason}"
            raise ModelError(problem, where=str(self._at.root), remedy=MORE_ROOM)
        for digest in decision.leave:
            self._at.discard(self._at.files(digest))
        if decision.leave:
            self._at.sweep()

    def _kept(self) -> list[Kept]:
        here = [one for one in self._at.digests() if self._at.has_files(one)]
        versions = [found for one in here if (found := self._at.read(one)) is not None]
        return [
            Kept(one.digest, one.blobs, self.used_ns(one), self._stays(one.digest))
            for one in versions
        ]

    def _stays(self, digest: str) -> str:
        """Inside `changing`."""
        if self._at.pin(digest).exists():
            return "pinned"
        return "in use" if self.is_used(digest) else ""

    def fits_disk(self, coming: Mapping[str, int]) -> None:
        """Inside `changing`: ModelError where the disk has not as much as is `coming`."""
        size = sum(one for key, one in coming.items() if not self._at.blob(key).exists())
        free = shutil.disk_usage(self._at.root).free
        if size > free:
            problem = f"{size:,} bytes are needed, {free:,} are free on the disk"
            raise ModelError(problem, where=str(self._at.root), remedy=MORE_ROOM)

    def used_ns(self, version: Version) -> int:
        """When it was used last, or else added."""
        try:
            return self._at.use_lock(version.digest).stat().st_mtime_ns
        except FileNotFoundError:
            return version.added_ns

    def is_used(self, digest: str) -> bool:
        """Whether a process holds it. For a moment nobody else can begin to."""
        lock = self._at.use_lock(digest)
        if not lock.exists():
            return False
        with if_free(lock) as is_free:
            return not is_free
