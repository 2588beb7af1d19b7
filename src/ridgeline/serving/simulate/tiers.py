"""What is behind an engine's cache: host memory, a disk, each with room and a link of its own.

A block that leaves the device's cache goes to the first tier, the longest unused one of a full tier
to the next, and from the last it is gone. What is loaded stays where it was, too. Writing costs no
time: it goes on behind the computing, the other way over the link.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.serving.policy.tiers import Rule
from ridgeline.timeline import NS


@dataclass(frozen=True, slots=True)
class Tier:
    """So much room, and a link; `first_s` passes before the first byte."""

    name: str
    bytes: float
    bytes_per_s: float
    first_s: float = 0.0

    def __post_init__(self) -> None:
        if self.bytes <= 0 or self.bytes_per_s <= 0 or self.first_s < 0:
            raise ValueError(f"{self} holds nothing, or gives nothing back")


@dataclass(frozen=True, slots=True)
class Tiers:
    """All of one replica, nearest first, and the rule of what is loaded."""

    order: tuple[Tier, ...]
    rule: Rule = "quicker"


class Shelves:
    """The blocks that are in the tiers of one replica."""

    def __init__(self, order: Sequence[Tier], block_bytes: float) -> None:
        if block_bytes <= 0:
            raise ValueError("how many bytes a block of the cache has is not known")
        self._order = order
        self._block_bytes = block_bytes
        self._rooms = [int(tier.bytes / block_bytes) for tier in order]
        self._there: list[OrderedDict[bytes, None]] = [OrderedDict() for _ in order]
        self._free_ns = [0] * len(order)  # when its link is

    def put(self, digest: bytes) -> None:
        """A block has left the device."""
        for there in self._there:
            there.pop(digest, None)
        moving = digest
        for there, room in zip(self._there, self._rooms, strict=True):
            there[moving] = None
            if len(there) <= room:
                return
            moving, _ = there.popitem(last=False)

    def where(self, digest: bytes) -> int | None:
        """The place of the tier that has it, the nearest is 0."""
        for place, there in enumerate(self._there):
            if digest in there:
                return place
        return None

    def groups(self, hashes: Sequence[bytes]) -> list[tuple[int, int]]:
        """Of a beginning's blocks those that are there: (tier, how many) one behind the other."""
        found: list[tuple[int, int]] = []
        for digest in hashes:
            place = self.where(digest)
            if place is None:
                break
            if found and found[-1][0] == place:
                found[-1] = place, found[-1][1] + 1
            else:
                found.append((place, 1))
        return found

    def name(self, place: int) -> str:
        """Of a tier."""
        return self._order[place].name

    def done_ns(self, place: int, blocks: int, since_ns: int) -> int:
        """When so many blocks are loaded, behind what its link has to do already."""
        tier = self._order[place]
        took_ns = round((tier.first_s + blocks * self._block_bytes / tier.bytes_per_s) * NS)
        return max(since_ns, self._free_ns[place]) + took_ns

    def load(self, place: int, hashes: Sequence[bytes], since_ns: int) -> int:
        """Begin to load these; when they are there."""
        for digest in reversed(hashes):  # a beginning is used after what goes on from it
            self._there[place].move_to_end(digest)
        self._free_ns[place] = self.done_ns(place, len(hashes), since_ns)
        return self._free_ns[place]
