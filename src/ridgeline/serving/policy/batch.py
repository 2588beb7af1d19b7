"""What runs in the next step: continuous batching under one budget of tokens.

A sequence is a number of tokens, of which some are computed; a prompt, a chunk of a prompt and
a decode are all "compute some of what is owed", so there are no phases. `serving.engine.loop`
and the simulator call the same state machine: decide, run the step, commit. It counts tokens
and never sees their ids.

    tokens      [ prompt ············ | generated ····· ]    known, to be computed
    computed    [ ················· ]                        the KV cache holds these
    chunk                            [start, start+count)    one step's rows of this sequence
    guesses                                         [ ?? ]   rows behind the last known token

The laws:
- One rank orders everything: priority (lower first), arrival, birth (a fork has its parent's
  arrival). Admission is strictly in this order; nobody overtakes a sequence that does not fit.
- Whoever owes one token goes before whoever owes more, so a decode is never delayed by a prompt.
- A sequence is admitted when all it knows fits, and holds that room from then on. Whoever waits
  holds nothing.
- Where blocks run out the last in rank is preempted: it gives all back and keeps its tokens.
  So the first in rank always advances, and any mix of requests that each fit alone finishes.
- Guesses (decisions/0014) take tokens and blocks that a decided step has left over, and give back
  what did not hold: after the commit all is as if they had never been there.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from ridgeline.serving.policy import runs
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.sequence import Sequence
from ridgeline.serving.policy.step import Admitted, Chunk, Draft, Limits, Step

__all__ = ["Admitted", "Batcher", "Chunk", "Limits", "Sequence", "Step", "Victim", "newest"]


Victim = Callable[[list[Sequence]], Sequence]
_by_rank = attrgetter("rank")


def newest(running: list[Sequence]) -> Sequence:
    """The victim: the last in rank, i.e. the newest of the lowest priority.

    Any rule that can choose the first in rank can starve it for ever: decisions/0005.
    """
    return running[-1]


class Batcher:
    """Decides step after step for one engine; the only user of its `book`.

    The caller's round: `decide()`, perhaps `guess(step, ...)`, run the step, `commit(step, ...)`,
    then `fork`, `extend` and `finish` as the new tokens demand. A sequence with its last token
    must be finished before the next `decide()`. `victim` replaces the preemption rule: tests prove
    what others break.
    """

    def __init__(self, limits: Limits, book: BlockBook, *, victim: Victim = newest) -> None:
        self.limits = limits
        self.book = book
        self._victim = victim
        self._sequences: dict[str, Sequence] = {}
        self._running: list[Sequence] = []  # both lists in order of rank
        self._waiting: list[Sequence] = []
        self._births = 0

    @property
    def running(self) -> int:
        """Sequences with a seat."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences without a seat: new, preempted, or forked when no seat was free."""
        return len(self._waiting)

    def table(self, sequence_id: str) -> list[int]:
        """The blocks of a running sequence, to read at once; KeyError where it does not run."""
        return self.book.table(sequence_id)

    def add(
        self,
        sequence_id: str,
        prompt_tokens: int,
        max_tokens: int,
        hashes: Iterable[bytes] = (),
        priority: int = 0,
        brought: int = 0,
    ) -> None:
        """Queue a new sequence; `hashes` are the chained hashes of its prompt's full blocks.

        Of its first `brought` tokens it has the cache with it, computed elsewhere, and gives that
        up where it is preempted. Raises ValueError where it could never run: empty, too long for
        the whole cache, or an id that is in use.
        """
        if prompt_tokens < 1:
            raise ValueError(f"{sequence_id}: an empty prompt gives no first token")
        self._births += 1
        rank = (priority, self._births, 0)
        most = self._checked_most(sequence_id, prompt_tokens, max_tokens)
        new = Sequence(sequence_id, rank, prompt_tokens, prompt_tokens, most, list(hashes))
        new.brought = min(brought, prompt_tokens - 1)  # the last one gives the next token
        self._queue(new)

    def fork(self, parent: str, child: str, max_tokens: int) -> None:
        """Continue `parent` in a second way: `child` has its tokens and shares its blocks.

        Called after the commit that sampled the parent's first token; the child's own first
        token counts as known. It has the hashes of the prompt's full blocks: `extend` goes on
        from there. Without a free seat the child waits, and computes anew what the cache has
        lost by then. Raises as `add` does, KeyError where the parent is unknown.
        """
        old = self._sequences[parent]
        most = self._checked_most(child, old.prompt, max_tokens)
        self._births += 1
        rank = (old.rank[0], old.rank[1], self._births)
        # A later hash of the parent may name a token that the child has not.
        hashes = old.hashes[: old.prompt // self.book.block_size]
        new = Sequence(child, rank, old.prompt, old.tokens, most, hashes)
        if not old.running or len(self._running) >= self.limits.max_seqs:
            self._queue(new)
            return
        self.book.fork(parent, child)
        old.room = 0
        new.computed, new.sealed = old.computed, min(old.sealed, len(hashes))
        self._seat(new)

    def extend(self, sequence_id: str, hashes: Iterable[bytes]) -> None:
        """Tell the hashes of further full blocks; each is sealed once its block is computed."""
        sequence = self._sequences[sequence_id]
        sequence.hashes.extend(hashes)
        sequence.seal(self.book)

    def finish(self, sequence_id: str) -> None:
        """Forget a sequence, ended or aborted, in any state; its blocks are free at once.

        Raises KeyError where it is unknown, e.g. finished before.
        """
        sequence = self._sequences.pop(sequence_id)
        if sequence.running:
            self.book.close(sequence_id)
            _remove(self._running, sequence)
        else:
            _remove(self._waiting, sequence)

    def decide(self) -> Step:
        """The next step: running sequences first, then as many waiting ones as fit.

        Blocks are taken and seats given at once, so a decided step must be run and committed
        (chunks of sequences finished in between are ignored). With nothing to do it is empty.
        """
        draft = Draft(self.limits.max_batched_tokens)
        chunks = draft.chunks
        more = []
        for sequence in self._running.copy():  # serving one may preempt another
            start = sequence.computed
            if start < sequence.room:
                chunks.append(Chunk(sequence.id, start, 1, True))
            elif not sequence.running:
                continue
            elif sequence.tokens - start == 1:
                self._serve(sequence, draft)
            else:
                more.append(sequence)
        # So far each chunk is one token, and there are no more of them than seats.
        draft.budget = self.limits.max_batched_tokens - len(chunks)
        for sequence in more:
            if sequence.running and draft.budget:
                self._serve(sequence, draft)
        self._admit(draft)
        return draft.step()

    def guess(self, step: Step, guesses: Mapping[str, int]) -> Step:
        """The decided step with guessed tokens behind some of its decodes, as far as there is room.

        Their rows come out of what the step's budget has left, their blocks out of those that are
        free; nobody is preempted for a guess, and nobody waits for one. Fewer than asked for are
        given where tokens, blocks or the sequence's own end are near. A sequence guesses from its
        second token on: its first may be the beginning of several.
        """
        left = self.limits.max_batched_tokens - step.tokens
        chunks = []
        for chunk in step.chunks:
            given = min(guesses.get(chunk.id, 0), left, self._room_for_guesses(chunk))
            if given > 0 and self.book.grow(chunk.id, chunk.start + 1 + given):
                left -= given
                self._sequences[chunk.id].room = 0
                chunk = replace(chunk, count=1 + given, guesses=given)
            chunks.append(chunk)
        return replace(step, chunks=tuple(chunks))

    def commit(self, step: Step, held: Mapping[str, int] | None = None) -> None:
        """The step was run: what it computed is in the cache, what it sampled is known.

        `held` says how many of a chunk's guesses came true (none where it says nothing). The
        others leave the cache, and so do the blocks that only they needed.
        """
        sequences = self._sequences
        for chunk in step.chunks:
            sequence = sequences.get(chunk.id)
            if sequence is None or not sequence.running:
                continue
            assert sequence.computed == chunk.start, f"{chunk} after {sequence.computed} tokens"
            sequence.computed += chunk.count
            sequence.tokens += chunk.samples
            if chunk.guesses:
                true = held.get(chunk.id, 0) if held else 0
                sequence.computed += true - chunk.guesses
                sequence.tokens += true
                self.book.shrink(chunk.id, sequence.computed)
            if len(sequence.hashes) > sequence.sealed:
                sequence.seal(self.book)

    def repeat(self, step: Step, times: int) -> None:
        """The decided step was run, and `times - 1` repeats of it that nobody decided.

        All is as after so many rounds of `commit` and `decide`, the last one without its `decide`.
        `times` is 1 to `horizon(step)`, and nothing else happened since that was asked.
        """
        if times == 1:
            self.commit(step)
            return
        assert len(step.chunks) == len(self._running), f"{step} is not what repeats"
        assert step.chunks[0].start == self._running[0].computed, f"{step} is not what repeats"
        self.advance(times)

    def run(self) -> runs.Run | None:
        """What `decide` and its `horizon` say, in short, where all who run decode for a while.

        The first step is decided then, as by `decide`. None, with nothing changed, where there is
        more to say. Who waits is looked at only where a seat is free.
        """
        if not self._running or (self._waiting and len(self._running) < self.limits.max_seqs):
            return None
        return runs.begin(self._running, self.book)

    def advance(self, times: int) -> None:
        """So many steps of a `run` were done; as `repeat`."""
        runs.advance(self._running, self.book, times)

    @property
    def running_ids(self) -> list[str]:
        """Who has a seat, in order of rank."""
        return [one.id for one in self._running]

    @property
    def complete(self) -> list[str]:
        """Who runs and has all tokens, in order of rank: to be finished before `decide`."""
        return [one.id for one in self._running if one.tokens == one.most]

    def left(self, sequence_id: str) -> int:
        """The tokens that a sequence still gets; KeyError where it is unknown."""
        sequence = self._sequences[sequence_id]
        return sequence.most - sequence.tokens

    def horizon(self, step: Step) -> int:
        """How many steps, this one included, run these same chunks, each one token further.

        Called between `decide` and `commit`. Exact if until then nobody arrives, ends early, is
        forked or extended: the repeats admit, preempt and copy nothing, and the last one at the
        latest brings a sequence to its end. 1 where the step holds more than plain decodes (it
        does not repeat), 0 where it is empty.
        """
        if not step.chunks:
            return 0
        if step.admitted or step.preempted or len(step.chunks) < len(self._running):
            return 1
        to_their_ends = [
            sequence.most - sequence.tokens
            for sequence in self._running
            if sequence.computed < sequence.room
        ]
        if len(to_their_ends) < len(self._running):
            return 1
        # Who waits now keeps waiting: decodes free no block, and whoever seals one that the
        # first in line could share takes a new one in the next step.
        return runs.steps_with_blocks(self._running, self.book, min(to_their_ends))

    def _checked_most(self, sequence_id: str, prompt_tokens: int, max_tokens: int) -> int:
        if sequence_id in self._sequences:
            raise ValueError(f"{sequence_id}: the id is in use")
        if max_tokens < 1:
            raise ValueError(f"{sequence_id}: max_tokens is {max_tokens}, must be 1 or more")
        most = prompt_tokens + max_tokens
        if most > self.book.capacity_tokens:
            raise ValueError(
                f"{sequence_id}: {prompt_tokens} prompt tokens and {max_tokens} to generate are "
                f"more than the {self.book.capacity_tokens} that the whole cache holds"
            )
        return most

    def _queue(self, sequence: Sequence) -> None:
        self._sequences[sequence.id] = sequence
        _insert(self._waiting, sequence)

    def _seat(self, sequence: Sequence) -> None:
        self._sequences[sequence.id] = sequence
        sequence.running = True
        _insert(self._running, sequence)

    def _serve(self, sequence: Sequence, draft: Draft) -> None:
        """Give a running sequence what it owes, as far as the budget goes."""
        assert sequence.tokens < sequence.most, f"{sequence.id} is complete: finish it first"
        book, start = self.book, sequence.computed
        count = min(sequence.tokens - start, draft.budget)
        while lacking := book.lacking(sequence.id, start, start + count):
            if lacking <= book.free:
                book.grow(sequence.id, start + count)
                if copy := book.own(sequence.id, start):
                    draft.copies.append(copy)
                break
            victim = self._victim(self._running)
            self._preempt(victim, sequence, draft)
            if victim is sequence:
                return
        draft.take(sequence, count)
        if sequence.tokens - start == 1:
            sequence.find_room(start + 1, book.block_size)

    def _room_for_guesses(self, chunk: Chunk) -> int:
        """A plain decode may guess up to its last token but one: the last is sampled."""
        sequence = self._sequences[chunk.id]
        if chunk.count > 1 or not chunk.samples or sequence.tokens == sequence.prompt:
            return 0
        return sequence.most - sequence.tokens - 1

    def _preempt(self, victim: Sequence, needy: Sequence, draft: Draft) -> None:
        draft.drop(victim)
        draft.preempted.append(victim.id)
        draft.reasons.append(
            f"{victim.id} is preempted and keeps its {victim.tokens} tokens: "
            f"too few blocks were free for {needy.id}"
        )
        self.book.close(victim.id)
        _remove(self._running, victim)
        self.set_back(victim)
        _insert(self._waiting, victim)

    def set_back(self, victim: Sequence) -> None:
        """What a preempted sequence loses: its place in the cache, none of its tokens."""
        victim.running = False
        victim.computed = victim.sealed = victim.room = 0

    def may_admit(self, preempted: int) -> bool:
        """Nobody is admitted in a step that preempted: they would fight for the same blocks."""
        return not preempted

    def _admit(self, draft: Draft) -> None:
        """Seat the waiting in order of rank until one does not fit."""
        while self._waiting:
            sequence = self._waiting[0]
            hindrance = self._hindrance(draft)
            if not hindrance:
                blocks = self.book.open(sequence.id, sequence.tokens, sequence.hashes)
                if blocks is not None:
                    self._start(sequence, blocks, draft)
                    continue
                needed = self.book.blocks_for(sequence.tokens)
                hindrance = f"{self.book.free} blocks are free, it needs {needed} in all"
            behind = f", {len(self._waiting) - 1} behind it" if len(self._waiting) > 1 else ""
            draft.reasons.append(f"{sequence.id} waits{behind}: {hindrance}")
            return

    def _hindrance(self, draft: Draft) -> str:
        if not self.may_admit(len(draft.preempted)):
            return "blocks ran out in this step"
        if len(self._running) >= self.limits.max_seqs:
            return f"all {self.limits.max_seqs} seats are taken"
        if not draft.budget:
            return f"the step's {self.limits.max_batched_tokens} tokens are spent"
        return ""

    def _start(self, sequence: Sequence, blocks: int, draft: Draft) -> None:
        del self._waiting[0]
        sequence.sealed = blocks
        sequence.computed = max(blocks * self.book.block_size, sequence.brought)
        sequence.brought = 0
        self._seat(sequence)
        draft.admitted.append(Admitted(sequence.id, sequence.computed))
        draft.take(sequence, min(sequence.tokens - sequence.computed, draft.budget))


def _insert(ranked: list[Sequence], sequence: Sequence) -> None:
    if not ranked or ranked[-1].rank < sequence.rank:
        ranked.append(sequence)
    else:
        insort(ranked, sequence, key=_by_rank)


def _remove(ranked: list[Sequence], sequence: Sequence) -> None:
    del ranked[bisect_left(ranked, sequence.rank, key=_by_rank)]
