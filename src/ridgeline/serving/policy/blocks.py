"""Paged KV accounting: which block holds which tokens of which sequence, and who shares it.

The book knows counts and content hashes, never tensors or token ids. `batch` asks it for room,
the engine reads its tables and executes its copies; the simulator drives it with hashes of a
trace. A block is in exactly one state:

    blank ──take──> used (1..n sequences hold it) ──last release, no hash──> blank
                     ▲                                      │ last release, hash known
                     └──────────── prefix hit ──────────── idle ──taken, oldest first──> used

Idle blocks count as free: their content stays findable until the block is needed. A hash names
a whole prefix (it is chained by the caller), so blocks are released tail first, and the oldest
idle block is never the parent of another findable one. Every call costs O(blocks touched); where
nothing is shared and nothing findable, whole tables are taken and given back in one piece.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """The KV content of block `source` must be in block `target` before anything is written."""

    source: int
    target: int


class BlockBook:
    """The owner of `blocks` blocks of `block_size` tokens each.

    With `caching` off nothing is ever found again; forks still share blocks. `on_evict` is told the
    hash of each idle block that gives way: its content may be kept elsewhere, and come back by
    `restore`.
    """

    def __init__(self, blocks: int, block_size: int, *, caching: bool = True) -> None:
        if blocks < 1 or block_size < 1:
            raise ValueError(f"{blocks} blocks of {block_size} tokens hold nothing; both need 1")
        self.blocks = blocks
        self.block_size = block_size
        self.on_evict: Callable[[bytes], None] | None = None
        self._caching = caching
        self._tables: dict[str, list[int]] = {}
        self._references: dict[int, int] = {}  # of shared blocks: how many sequences hold it
        self._hashes: list[bytes | None] = [None] * blocks
        self._blank = list(range(blocks - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()  # longest unused first
        self._carriers: dict[bytes, int] = {}  # the one block found by a hash
        self._twins: dict[bytes, list[int]] = {}  # used blocks with a hash another one carries

    @property
    def capacity_tokens(self) -> int:
        """The tokens that fit when one sequence holds every block."""
        return self.blocks * self.block_size

    @property
    def free(self) -> int:
        """Blocks that no sequence holds, findable or not."""
        return len(self._blank) + len(self._idle)

    @property
    def used(self) -> int:
        """Blocks that at least one sequence holds; a shared block counts once."""
        return self.blocks - self.free

    @property
    def usage(self) -> float:
        """Used blocks as a share of all, 0..1."""
        return self.used / self.blocks

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens fill, the last one perhaps in part."""
        return -(-tokens // self.block_size)

    def table(self, sequence: str) -> list[int]:
        """The blocks of an open sequence in order. The book's own list: read it, do not keep it."""
        return self._tables[sequence]

    def cached(self, hashes: Sequence[bytes]) -> int:
        """How many leading `hashes` are found, i.e. how many blocks need no computing."""
        return len(self._leading(hashes))

    def open(self, sequence: str, tokens: int, hashes: Sequence[bytes] = ()) -> int | None:
        """Give a new sequence room for `tokens`, its leading blocks from the cache where found.

        At least the last token is left to compute, whatever is cached. Returns the number of
        blocks found, or None, with nothing changed, where too few blocks are free. Raises
        ValueError where the sequence is open already.
        """
        if sequence in self._tables:
            raise ValueError(f"sequence {sequence!r} is open already")
        found = self._leading(hashes[: max(tokens - 1, 0) // self.block_size])
        fresh = self.blocks_for(tokens) - len(found)
        if fresh + sum(block in self._idle for block in found) > self.free:
            return None
        for block in found:
            if block in self._idle:
                del self._idle[block]
            else:
                self._share(block)
        self._tables[sequence] = found + self._take(fresh)
        return len(found)

    def lacking(self, sequence: str, start: int, end: int) -> int:
        """Free blocks it takes to write tokens `start`..`end` of a sequence (`start` < `end`)."""
        table, size = self._tables[sequence], self.block_size
        lacking = -(-end // size) - len(table)
        first = start // size
        shared = first < len(table) and table[first] in self._references
        return lacking + shared if lacking > 0 else int(shared)

    def grow(self, sequence: str, tokens: int) -> bool:
        """Make room for `tokens` in all; False, with nothing changed, where blocks are too few."""
        table = self._tables[sequence]
        fresh = -(-tokens // self.block_size) - len(table)
        if fresh > 0:
            if fresh > self.free:
                return False
            table += self._take(fresh)
        return True

    def lengthen(self, sequences: Sequence[str]) -> None:
        """One block more for each of these, in this order. So many must be free."""
        tables = self._tables
        for sequence, block in zip(sequences, self._take(len(sequences)), strict=True):
            tables[sequence].append(block)

    def shrink(self, sequence: str, tokens: int) -> None:
        """Give back the last blocks of a sequence, those that hold none of its first `tokens`."""
        table = self._tables[sequence]
        while len(table) > self.blocks_for(tokens):
            self._release(table.pop())

    def own(self, sequence: str, position: int) -> Copy | None:
        """Make a token's block this sequence's alone, so that it may be written.

        Returns the copy to execute first where the block was shared; it takes one free block
        (`lacking` counts it).
        """
        table = self._tables[sequence]
        index = position // self.block_size
        block = table[index]
        if block not in self._references:
            assert self._hashes[block] is None, f"block {block} is sealed, {sequence} writes it"
            return None
        self._unshare(block)
        (table[index],) = self._take(1)
        return Copy(block, table[index])

    def fork(self, parent: str, child: str) -> None:
        """Open `child` on the very blocks of `parent`; the first write into one copies it."""
        if child in self._tables:
            raise ValueError(f"sequence {child!r} is open already")
        table = self._tables[child] = self._tables[parent].copy()
        for block in table:
            self._share(block)

    def seal(self, sequence: str, index: int, digest: bytes) -> None:
        """Make a sequence's full, computed block findable. Blocks are sealed in order.

        Where another used block carries the hash already, that one stays the findable one and
        this one steps in when it goes. An idle carrier gives its hash to the used block.
        """
        if not self._caching:
            return
        table = self._tables[sequence]
        block = table[index]
        if self._hashes[block] is not None:
            assert self._hashes[block] == digest, f"block {block} has two hashes"
            return
        assert index == 0 or self._hashes[table[index - 1]] is not None, f"{index} out of order"
        self._hashes[block] = digest
        carrier = self._carriers.setdefault(digest, block)
        if carrier == block:
            return
        if carrier not in self._idle:
            self._twins.setdefault(digest, []).append(block)
            return
        del self._idle[carrier]
        self._make_blank(carrier)
        self._carriers[digest] = block

    def restore(self, hashes: Sequence[bytes]) -> int:
        """A beginning's content was brought back: its blocks are idle, and findable from now on.

        As many as fit without driving out their own beginning, counted from the first that is not
        here. Returns how many.
        """
        leading = self._leading(hashes)
        missing = hashes[len(leading) :]
        self._touch(leading)
        kept = sum(block in self._idle for block in leading)
        blocks = self._take(min(len(missing), self.free - kept)) if self._caching else []
        for block, digest in zip(blocks, missing, strict=False):
            assert digest not in self._carriers, "what is here has all before it here"
            self._hashes[block] = digest
            self._carriers[digest] = block
        for block in reversed(blocks):
            self._idle[block] = None
        self._touch(leading)
        return len(blocks)

    def close(self, sequence: str) -> None:
        """Release a sequence's blocks; sealed ones stay findable until they are needed."""
        table = self._tables.pop(sequence)
        table.reverse()
        if self._carriers or self._references:
            for block in table:
                self._release(block)
        else:
            self._blank += table

    def _touch(self, beginning: Sequence[int]) -> None:
        """These were used just now, if they are idle; the first is the last to give way."""
        for block in reversed(beginning):
            if block in self._idle:
                self._idle.move_to_end(block)

    def _leading(self, hashes: Sequence[bytes]) -> list[int]:
        found = []
        for digest in hashes:
            block = self._carriers.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def _take(self, count: int) -> list[int]:
        """So many free blocks: the blank one given back last goes first, then idle ones."""
        blank = self._blank
        if count == 1 and blank:
            return [blank.pop()]
        left = max(len(blank) - count, 0)
        taken = blank[left:]
        taken.reverse()
        del blank[left:]
        while len(taken) < count:
            block, _ = self._idle.popitem(last=False)
            digest = self._hashes[block]
            assert digest is not None, f"block {block} is idle without a hash"
            del self._carriers[digest]
            self._hashes[block] = None
            taken.append(block)
            if self.on_evict is not None:
                self.on_evict(digest)
        return taken

    def _share(self, block: int) -> None:
        self._references[block] = self._references.get(block, 1) + 1

    def _unshare(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block] == 1:
            del self._references[block]

    def _release(self, block: int) -> None:
        if block in self._references:
            self._unshare(block)
            return
        digest = self._hashes[block]
        if digest is None:
            self._blank.append(block)
        elif digest not in self._twins:
            self._idle[block] = None
        else:
            self._hand_over(block, digest)
            self._make_blank(block)

    def _hand_over(self, block: int, digest: bytes) -> None:
        """A used twin keeps the hash findable, so that no child outlives its parent's hash."""
        twins = self._twins[digest]
        if self._carriers[digest] == block:
            self._carriers[digest] = twins.pop()
        else:
            twins.remove(block)
        if not twins:
            del self._twins[digest]

    def _make_blank(self, block: int) -> None:
        self._hashes[block] = None
        self._blank.append(block)

    def check(self) -> None:
        """Assert every invariant. Costs O(blocks): for tests and soaks."""
        held = Counter(block for table in self._tables.values() for block in table)
        for sequence, table in self._tables.items():
            assert len(set(table)) == len(table), f"{sequence} holds a block twice: {table}"
        shared = {block: holders for block, holders in held.items() if holders > 1}
        assert self._references == shared, f"shared: {shared}, counted {self._references}"
        places = sorted([*self._blank, *self._idle, *held])
        assert places == list(range(self.blocks)), f"not one place for each block: {places}"
        self._check_hashes(held)

    def _check_hashes(self, held: Counter[int]) -> None:
        for block in self._blank:
            assert self._hashes[block] is None, f"blank block {block} has a hash"
        for block in self._idle:
            digest = self._hashes[block]
            assert digest is not None, f"idle block {block} has no hash"
            assert self._carriers[digest] == block, f"idle block {block} cannot be found"
        for digest, block in self._carriers.items():
            assert self._hashes[block] == digest, f"block {block} is found by a foreign hash"
        twins = [(digest, block) for digest, group in self._twins.items() for block in group]
        others = [
            (digest, block)
            for block, digest in enumerate(self._hashes)
            if digest is not None and self._carriers[digest] != block
        ]
        assert sorted(twins) == sorted(others), f"twins {twins}, but {others} carry no hash"
        for digest, block in twins:
            carrier = self._carriers[digest]
            assert held[block], f"twin {block} is not used"
            assert held[carrier], f"carrier {carrier} is idle beside {block}"
