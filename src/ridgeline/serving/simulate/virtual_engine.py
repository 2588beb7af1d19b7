"""One replica's engine in virtual time: the scheduler of the real engine, and a time for each step.

`policy.batch` decides what runs, as in `serving.engine.loop`; `pace` says how long it takes. Where
the scheduler sees that its decision will repeat (`Batcher.horizon`), the engine jumps to the end of
the run. Whoever comes in between (`add`, `abort`, `sync`) finds it as it would be without the jump:

    run of k steps     |--1--|--2--|--3--|--4--| ... |--k--|
                                      ^ a request: steps 1 and 2 have ended, 3 goes on and ends,
                                        and the next decision has the request in it
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ridgeline.serving.policy.batch import Batcher, Step
from ridgeline.serving.simulate.gaps import Gaps
from ridgeline.serving.simulate.pace import FS_IN_NS, Pace, ns_after
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Work:
    """A request as an engine sees it; `hashes` name its full blocks, those of its answer too."""

    id: str
    prompt_tokens: int
    output_tokens: int
    hashes: Sequence[bytes] = ()
    priority: int = 0


class Listener(Protocol):
    """Who is told what an engine does, at the instant at which it happens."""

    def admitted(self, work_id: str, cached_tokens: int) -> None:
        """It has a seat for the first time or, after it was preempted, again."""

    def first_token(self, work_id: str) -> None:
        """Its prompt is computed."""

    def finished(self, work_id: str) -> None:
        """Its last token is there."""


class VirtualEngine:
    """`add`, `abort`, `sync`, `die`; and what is to be read from it, right after a `sync`.

    With `jumps` off it goes step by step; nothing else may differ.
    """

    def __init__(
        self,
        timeline: Timeline,
        number: int,
        batcher: Batcher,
        pace: Pace,
        listener: Listener,
        *,
        jumps: bool = True,
        gaps: bool = False,
    ) -> None:
        self.batcher = batcher
        self.pace = pace
        self.steps = self.preemptions = 0
        self.busy_fs = 0
        #: Of the request that ended last, with `gaps`.
        self.gap_fs = 0
        self._timeline = timeline
        self._ends = rank(Kind.STEP_ENDS, number)
        self._begins = rank(Kind.STEP_BEGINS, number)
        self._listener = listener
        self._jumps = jumps
        self._left: dict[str, int] = {}  # tokens that a request still gets
        self._unsaid: set[str] = set()  # who has no token yet
        self._step: Step | None = None
        self._run = 0  # how many steps it stands for
        self._cached = 0  # tokens cached at its beginning, of a run
        self._since_fs = 0  # when it began; between two steps when the last one ended
        self._is_waking = False
        self._gaps = Gaps() if gaps else None
        self._turn = 0  # what was put down for another turn is void

    @property
    def work(self) -> int:
        """Requests that are there, running or waiting."""
        return len(self._left)

    def __contains__(self, work_id: str) -> bool:
        """Whether a request is there."""
        return work_id in self._left

    def left(self, work_id: str) -> int:
        """How many tokens a request still gets."""
        return self._left[work_id]

    def add(self, work: Work) -> None:
        """A request has come. ValueError where it can never run here."""
        self.sync()
        self.batcher.add(
            work.id, work.prompt_tokens, work.output_tokens, work.hashes, work.priority
        )
        self._left[work.id] = work.output_tokens
        self._unsaid.add(work.id)
        self._wake()

    def abort(self, work_id: str) -> None:
        """Nobody wants it any more; a step that it is in still takes its time."""
        self.sync()
        self._forget(work_id)

    def die(self) -> None:
        """All is lost at once."""
        self.sync()
        for work_id in list(self._left):
            self._forget(work_id)
        self._step = None
        self._turn += 1
        self._is_waking = False

    def sync(self) -> None:
        """Bring the scheduler to the present, if the engine has jumped beyond it."""
        if self._run <= 1:
            return
        assert self._step is not None, "a run is of a step"
        sequences, now_ns = len(self._step.chunks), self._timeline.now_ns
        # A step that ends at this very instant has ended only if its turn has come.
        until_ns = now_ns - (self._timeline.rank < self._ends)
        within_fs = until_ns * FS_IN_NS - self._since_fs
        ended = self.pace.steps_within(sequences, self._cached, self._run - 1, within_fs)
        self._turn += 1
        if ended:
            took_fs = self.pace.run_fs(sequences, self._cached, ended)
            self._commit(self._step, ended, took_fs)
            self._cached += ended * sequences
            if ns_after(self._since_fs) == now_ns:  # the next decision is still to come
                self._step, self._run = None, 0
                self._wake()
                return
            self._step = self.batcher.decide()
            assert len(self._step.chunks) == sequences, "a decision that repeats"
        self._run = 1
        self._expect_end(self.pace.run_fs(sequences, self._cached, 1))

    def _wake(self) -> None:
        """Decide at this instant, after all that still happens in it."""
        if self._step is None and not self._is_waking:
            self._is_waking = True
            self._timeline.at(self._timeline.now_ns, self._begins, self._begin, self._turn)

    def _begin(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._is_waking = False
        step = self.batcher.decide()
        self.preemptions += len(step.preempted)
        for admitted in step.admitted:
            self._listener.admitted(admitted.id, admitted.cached_tokens)
        if not step.chunks:
            return
        now_ns = self._timeline.now_ns
        if ns_after(self._since_fs) != now_ns:  # it was idle; else it goes on where it was
            self._since_fs = now_ns * FS_IN_NS
        self._step, self._run = step, 1
        if self._jumps and self.pace.is_straight and not self._begins_any(step):
            self._run = self.batcher.horizon(step)
        if self._run > 1:
            self._cached = sum([chunk.start for chunk in step.chunks])
            self._expect_end(self.pace.run_fs(len(step.chunks), self._cached, self._run))
        else:
            self._expect_end(self.pace.step_fs(step))

    def _begins_any(self, step: Step) -> bool:
        """Whether somebody gets a first token: that has to be told when it is there."""
        unsaid = self._unsaid
        return bool(unsaid) and not unsaid.isdisjoint([chunk.id for chunk in step.chunks])

    def _expect_end(self, after_fs: int) -> None:
        ends_ns = ns_after(self._since_fs + after_fs)
        self._timeline.at(ends_ns, self._ends, self._end, (self._turn, after_fs))

    def _end(self, what: tuple[int, int]) -> None:
        turn, took_fs = what
        if turn != self._turn:
            return
        assert self._step is not None, "what ends has begun"
        step, run = self._step, self._run
        self._step, self._run = None, 0
        self._commit(step, run, took_fs)
        if self._left:
            self._wake()

    def _commit(self, step: Step, times: int, took_fs: int) -> None:
        """So many of a run's steps have ended."""
        self.batcher.repeat(step, times)
        self.steps += times
        self.busy_fs += took_fs
        if self._gaps is not None:
            self._note_gaps(self._gaps, step, times, took_fs)
        self._since_fs += took_fs
        left, begun, ended = self._left, [], []
        for chunk in step.chunks:
            if chunk.samples and chunk.id in left:
                still = left[chunk.id] = left[chunk.id] - times
                if not still:
                    ended.append(chunk.id)
                if chunk.id in self._unsaid:
                    begun.append(chunk.id)
        for work_id in begun:
            self._unsaid.discard(work_id)
            self._listener.first_token(work_id)
        for work_id in ended:
            if work_id in left:  # its client may have left at its first token
                self._forget(work_id)
                self._listener.finished(work_id)

    def _note_gaps(self, gaps: Gaps, step: Step, times: int, took_fs: int) -> None:
        first_fs = last_fs = took_fs
        if times > 1:
            sequences, cached = len(step.chunks), self._cached
            first_fs = self.pace.run_fs(sequences, cached, 1)
            last_fs -= self.pace.run_fs(sequences, cached, times - 1)
        ids = [one.id for one in step.chunks if one.samples and one.id in self._left]
        gaps.saw(ids, self._since_fs, took_fs, first_fs, last_fs)

    def _forget(self, work_id: str) -> None:
        del self._left[work_id]
        self._unsaid.discard(work_id)
        self.gap_fs = self._gaps.pop(work_id) if self._gaps is not None else 0
        self.batcher.finish(work_id)
