"""Runs: sequences that only decode, step after step, with one decision that repeats.

A round of the batcher commits a step and decides the next one. To a sequence that decodes, nothing
happens in most rounds but counting; where its block is full, two things do, and their order is the
law here, since a block that is sealed or taken may be another sequence's cached one:

    round             1    2    3    4    5    6      (blocks of 4)
    a   · · · | ·     ·    ·    · S+ |·    ·    ·     S: its full block is sealed, in the commit
    b   · · · | · ·   ·    · S+ |·    ·    ·    · S   +: it takes the next one, in the decision
    c   · · · | · ·   ·    · S+ |·    ·    ·    · S      behind it; none behind the last commit

All that reach an end in one round seal first, in order of rank, and then take, in order of rank.
"""

from dataclasses import dataclass

from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.sequence import Sequence


@dataclass(slots=True)
class Run:
    """So many sequences decode for so many steps; they have `cached_tokens` in all at first."""

    sequences: int
    cached_tokens: int
    steps: int


def begin(running: list[Sequence], book: BlockBook) -> Run | None:
    """Decide the first step of a run of all who run: whoever needs a block for it gets one.

    None, with nothing changed, where somebody gets his first token (it has to be told when it is
    there) or owes more than one, or where a block is shared or not to be had: then there is more
    to decide.
    """
    cached, left = 0, running[0].most
    at_ends: list[Sequence] = []
    for sequence in running:
        computed, still = sequence.computed, sequence.most - sequence.tokens
        cached += computed
        if computed >= sequence.room:
            if sequence.tokens - computed != 1 or sequence.tokens == sequence.prompt:
                return None
            at_ends.append(sequence)
        if still < left:
            left = still
    if at_ends and not _take_first(at_ends, book):
        return None
    return Run(len(running), cached, steps_with_blocks(running, book, left))


def _take_first(at_ends: list[Sequence], book: BlockBook) -> bool:
    """The blocks of a run's first step, in order of rank; whether they were there to be had."""
    takers = []
    for sequence in at_ends:
        start = sequence.computed
        if lacking := book.lacking(sequence.id, start, start + 1):
            if lacking > book.blocks_for(start + 1) - len(book.table(sequence.id)):
                return False  # it has to be copied first
            takers.append(sequence.id)
    if len(takers) > book.free:
        return False
    if takers:
        book.lengthen(takers)
    for sequence in at_ends:
        sequence.find_room(sequence.computed + 1, book.block_size)
    return True


def steps_with_blocks(running: list[Sequence], book: BlockBook, steps: int) -> int:
    """The most of `steps` decodes of each that the free blocks allow, 1 at least.

    The first step is decided, i.e. has its blocks. No block comes free on the way, so bisection
    over the number of steps is exact.
    """
    if len(running) * book.blocks_for(steps - 1) <= book.free:  # at the most
        return steps
    if _blocks_to_grow(running, book, steps) <= book.free:
        return steps
    low, high = 1, steps - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _blocks_to_grow(running, book, middle) <= book.free:
            low = middle
        else:
            high = middle - 1
    return low


def advance(running: list[Sequence], book: BlockBook, steps: int) -> None:
    """Commit a decided step of decodes and `steps - 1` repeats, each decided in between.

    `running` are all of them in order of rank; `steps` is no more than their blocks and ends allow.
    """
    size = book.block_size
    full_after: dict[int, list[Sequence]] = {}  # the round in which a block is full: whose
    for sequence in running:
        sequence.tokens += steps
        after = sequence.computed + steps
        if after < sequence.room:
            sequence.computed = after
        else:
            full_after.setdefault(size - sequence.computed % size, []).append(sequence)
    if full_after:
        _pass_ends(full_after, book, steps)
    for sequences in full_after.values():
        for sequence in sequences:
            assert sequence.tokens <= sequence.most, f"{sequence.id} had ended before"
            sequence.computed = sequence.tokens - 1
            sequence.find_room(sequence.computed, size)


def _pass_ends(full_after: dict[int, list[Sequence]], book: BlockBook, steps: int) -> None:
    """What the rounds do to those whose blocks they fill; each block is full a block's size later.

    Blocks are taken all at once behind the last round, unless one is sealed before.
    """
    size = book.block_size
    ends = [
        (further, [one.id for one in full], [one for one in full if len(one.hashes) > one.sealed])
        for further, full in sorted(full_after.items())
    ]
    takers: list[str] = []
    done = 0
    while done < steps:
        for further, names, sealing in ends:
            if done + further > steps:
                break
            for sequence in sealing:
                if len(sequence.hashes) > sequence.sealed:
                    book.lengthen(takers)
                    takers = []
                    _seal_next(sequence, book)
            if done + further < steps:  # no decision is behind the last commit
                takers += names
        done += size
    book.lengthen(takers)


def _seal_next(sequence: Sequence, book: BlockBook) -> None:
    sequence.computed += book.block_size - sequence.computed % book.block_size
    sequence.seal(book)


def _blocks_to_grow(running: list[Sequence], book: BlockBook, steps: int) -> int:
    return sum(
        max(book.blocks_for(sequence.computed + steps) - len(book.table(sequence.id)), 0)
        for sequence in running
    )
