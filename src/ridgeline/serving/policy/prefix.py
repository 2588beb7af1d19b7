"""Which replica has computed the beginning of a prompt: a bounded, approximate index. Pure.

A prompt is a list of chained hashes, one for each block of its text, so that a hash names all that
comes before it too. For each replica the index keeps the blocks of the prompts that were sent
there, newest use last, and forgets the oldest beyond what its KV cache holds: a model of the
replica's own cache, which nobody has to ask. Called by the gateway's fleet and the simulator.

The law: whoever has a block has all blocks before it. A prompt is recorded tail first, so a block
is always older than its parents and is forgotten before them. Therefore the longest known
beginning is found by bisection, O(log blocks) for a replica, and no tree is needed. Of each block
it is kept whether any prompt went on behind it, for that tells a conversation's next turn (it
begins with all that is known of the turn before) from prompts that only begin alike.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

#: Blocks of a replica that says nothing: 500,000 tokens of cache in blocks of 16.
DEFAULT_BLOCKS = 31_250


class PrefixIndex:
    """The recent blocks of each replica; about 0.2 kB a block, whatever the traffic."""

    def __init__(self, default_blocks: int = DEFAULT_BLOCKS) -> None:
        if default_blocks < 1:
            raise ValueError(f"an index of {default_blocks} blocks a replica remembers nothing")
        self._default = default_blocks
        self._most: dict[str, int] = {}
        self._recent: dict[str, OrderedDict[int, bool]] = {}  # newest last; whether more follows

    def __len__(self) -> int:
        """Blocks that are remembered, over all replicas."""
        return sum(map(len, self._recent.values()))

    def match(self, blocks: Sequence[int]) -> dict[str, int]:
        """How many blocks of this prompt each replica has; those with none are left out."""
        found: dict[str, int] = {}
        if blocks:
            first = blocks[0]
            for replica, recent in self._recent.items():
                if first in recent:
                    found[replica] = _known(recent, blocks)
        return found

    def warm_tokens(
        self, blocks: Sequence[int], input_tokens: int, prompt_blocks: float
    ) -> dict[str, int]:
        """The same in tokens; the prompt is `prompt_blocks` long, its incomplete last included."""
        return {
            replica: int(input_tokens * min(1.0, count / prompt_blocks))
            for replica, count in self.match(blocks).items()
        }

    def continues(self, blocks: Sequence[int]) -> bool:
        """Whether the prompt goes on where former ones ended, on those replicas that have most."""
        found = self.match(blocks)
        if not found:
            return False
        most = max(found.values())
        last = blocks[most - 1]
        return not any(self._recent[one][last] for one, count in found.items() if count == most)

    def record(self, replica: str, blocks: Sequence[int]) -> None:
        """The prompt was sent to this replica."""
        recent = self._recent.setdefault(replica, OrderedDict())
        move, known, follows = recent.move_to_end, recent.get, False
        for block in reversed(blocks):
            recent[block] = known(block, False) or follows
            move(block)
            follows = True
        self._forget(replica, recent)

    def resize(self, replica: str, blocks: int) -> None:
        """The replica's cache holds so many blocks."""
        self._most[replica] = max(1, blocks)
        if replica in self._recent:
            self._forget(replica, self._recent[replica])

    def remove(self, replica: str) -> None:
        """The replica is gone, or has started anew with an empty cache."""
        self._recent.pop(replica, None)
        self._most.pop(replica, None)

    def _forget(self, replica: str, recent: OrderedDict[int, bool]) -> None:
        most = self._most.get(replica, self._default)
        while len(recent) > most:
            recent.popitem(last=False)


def _known(recent: OrderedDict[int, bool], blocks: Sequence[int]) -> int:
    """How many of the leading blocks are there; the first one is."""
    # False for the blocks that are there, then True: what a bisection needs.
    return bisect_left(blocks, True, 1, key=lambda block: block not in recent)
