"""Which versions leave a full store. Pure: the store looks, asks, and does it.

Law: a version that is pinned or in use stays; of the others those stay that were used last. One
that has no bytes of its own stays too, since versions share what they have in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """A version whose bytes are here. `stays` says why it has to, "" where it may go."""

    digest: str
    blobs: Mapping[str, int]
    used_ns: int
    stays: str = ""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Which leave, in this order. Where even that is not enough, none does and `fits` is false."""

    leave: tuple[str, ...]
    fits: bool
    reason: str


def evict(kept: Sequence[Kept], coming: Mapping[str, int], limit_bytes: int) -> Eviction:
    """What has to leave so that all that is here with what is `coming` is within the limit."""
    oldest_first = sorted(kept, key=lambda one: (one.used_ns, one.digest))
    staying = [one for one in oldest_first if one.stays]
    if (least := _bytes(staying, coming)) > limit_bytes:
        told = f"{least:,} bytes are needed of {limit_bytes:,}; {_why(staying)}"
        return Eviction((), False, told)
    # From the one that was used last on, all that fits stays; so does what shares all its bytes.
    leave: list[str] = []
    for one in reversed([one for one in oldest_first if not one.stays]):
        if _bytes([*staying, one], coming) <= limit_bytes:
            staying.append(one)
        else:
            leave.append(one.digest)
    told = f"{_bytes(staying, coming):,} bytes of {limit_bytes:,} with it"
    return Eviction(tuple(reversed(leave)), True, told)


def _bytes(versions: Iterable[Kept], coming: Mapping[str, int]) -> int:
    blobs = dict(coming)
    for one in versions:
        blobs.update(one.blobs)
    return sum(blobs.values())


def _why(staying: Sequence[Kept]) -> str:
    named = [f"{one.digest[:12]} is {one.stays}" for one in staying if one.stays]
    return ", ".join(named) or "that is more than the whole store may hold"
