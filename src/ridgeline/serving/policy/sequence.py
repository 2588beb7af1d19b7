"""One sequence as the scheduler counts it. `batch` owns these; `runs` lets many of them go on.

tokens      [ prompt ············ | generated ····· ]    known, to be computed
computed    [ ················· ]                        the KV cache holds these
sealed      [ ············ ]                             full blocks whose hash is in the book
room        [ ··················· ]                      may be written without asking the book
"""

from dataclasses import dataclass

from ridgeline.serving.policy.blocks import BlockBook


@dataclass(slots=True, eq=False)
class Sequence:
    """What the batcher knows of one sequence. A victim rule reads it.

    `tokens` are known (prompt and generated), `computed` of them are in the cache, `most` is
    their number when the sequence is complete; `sealed` counts blocks whose hash is in the book.
    `brought` tokens come with their cache, which was computed elsewhere, when it gets its seat.

    While `computed` is below `room` the sequence owes one token and its place is there, in a block
    that nobody shares: a decode that needs no further look. So a room is found at a decode
    (`find_room`), is gone where that ends (0), and never has the place of the last token, which
    is not computed any more.
    """

    id: str
    rank: tuple[int, int, int]
    prompt: int
    tokens: int
    most: int
    hashes: list[bytes]
    computed: int = 0
    sealed: int = 0
    room: int = 0
    brought: int = 0
    running: bool = False

    def find_room(self, tokens: int, block_size: int) -> None:
        """Of a decode with its own blocks for so many tokens: to the end of the last block."""
        end = -(-tokens // block_size) * block_size
        self.room = end if end < self.most else self.most - 1

    def seal(self, book: BlockBook) -> None:
        """Make each full block findable whose hash is known."""
        if not self.running:
            return
        full = min(self.computed // book.block_size, len(self.hashes))
        for index in range(self.sealed, full):
            book.seal(self.id, index, self.hashes[index])
            self.sealed = index + 1
