"""Low-rank adapters in a simulation: who uses which, and what they cost an engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from ridgeline.serving.simulate.asked import Asked
from ridgeline.serving.simulate.chances import Chances

_DRAWN = "adapter"


@dataclass(frozen=True, slots=True)
class Adapters:
    """An engine holds `slots` of them; each takes `load_s` to load, one after the other.

    A step takes `read_s` longer for each different one in it. `shares` of the requests use each; a
    request that says itself which it uses is not asked. The rest is for the base model.
    """

    shares: Mapping[str, float]
    slots: int
    load_s: float
    read_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.shares.values(), default=0) < 0 or sum(self.shares.values()) > 1 + 1e-9:
            raise ValueError(f"shares are 0 or more each, 1 at most together: {self.shares}")
        if "" in self.shares:
            raise ValueError('the base model gets what is left: leave "" out')
        if self.slots < 1 or self.load_s < 0 or self.read_s < 0:
            raise ValueError("slots are 1 or more, times 0 or more")

    def dress(self, asked: Asked, chances: Chances) -> None:
        """A request has come, perhaps not for the first time: its adapter, and blocks of that."""
        if not asked.adapter:
            asked.adapter = self._drawn(chances.share(_DRAWN, asked.number))
        if asked.adapter and asked.blocks and not isinstance(asked.blocks, _Own):
            own = int.from_bytes(blake2b(asked.adapter.encode(), digest_size=15).digest())
            asked.blocks = _Own(block ^ own for block in asked.blocks)

    def _drawn(self, left: float) -> str:
        for name, share in self.shares.items():
            left -= share
            if left < 0:
                return name
        return ""


class _Own(list[int]):
    """Blocks with names of their own: equal text under another adapter has another cache."""
