"""One replica's engine in virtual time: the scheduler of the real engine, and a time for each step.

`policy.batch` decides what runs, as in `serving.engine.loop`; `pace` says how long it takes. Where
the scheduler sees that its decision will repeat (`Batcher.run`), the engine jumps to the end of the
run. Whoever looks at it in between (`sync`) finds it as it would be without the jump; and a request
that comes in between waits for the step that goes on, as it would at the real engine's door:

    run of k steps     |--1--|--2--|--3--|--4--| ... |--k--|
                                      ^ a request: the run ends with step 3, and the next decision
                                        has the request in it

Where a `speculator` may guess it goes step by step, since each step is asked about; where it is off
above a batch, it jumps. A `lobby` holds whoever has to wait for something to be loaded.
"""

from typing import Protocol

from ridgeline.physics.straight_steps import FS
from ridgeline.serving.policy.batch import Batcher, Step
from ridgeline.serving.policy.runs import Run
from ridgeline.serving.simulate.gaps import Gaps
from ridgeline.serving.simulate.guesses import Speculator
from ridgeline.serving.simulate.lobby import Lobby
from ridgeline.serving.simulate.pace import FS_IN_NS, Pace, ns_after
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.work import Work
from ridgeline.timeline import Timeline


class Listener(Protocol):
    """Who is told what an engine does, at the instant at which it happens."""

    def admitted(self, work_id: str, cached_tokens: int) -> None:
        """It has a seat for the first time or, after it was preempted, again."""

    def first_token(self, work_id: str) -> None:
        """Its prompt is computed."""

    def finished(self, work_id: str) -> None:
        """Its last token is there."""


class Metering(Protocol):
    """Who is told of steps that have ended, before they are committed."""

    def step(self, step: Step, took_fs: int) -> None:
        """One."""

    def run(self, run: Run, times: int, took_fs: int) -> None:
        """So many of a run."""


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
        ahead: bool = False,
    ) -> None:
        self.batcher = batcher
        self.pace = pace
        self.steps = self.preemptions = 0
        self.busy_fs = 0
        self.meter: Metering | None = None
        self.speculator: Speculator | None = None
        self.lobby: Lobby | None = None
        #: Of the request that ended last, with `gaps`.
        self.gap_fs = 0
        self._timeline = timeline
        self._ends = rank(Kind.STEP_ENDS, number)
        self._begins = rank(Kind.STEP_BEGINS, number)
        self._listener = listener
        self._jumps = jumps
        self._gaps = Gaps() if gaps else None
        self._ahead = ahead
        self._door: dict[str, Work] = {}  # who has come since the last decision
        self._hall: dict[str, Work] = {}  # with `ahead`: who came too late for it
        self._unsaid: set[str] = set()  # who is behind the door and has no token yet
        self._said: dict[str, None] = {}  # who has one
        self._step: Step | None = None  # what goes on: a step,
        self._run: Run | None = None  # or a run, of which this many steps are left to do
        self._more_fs = 0  # what each step that goes on takes longer than its pace says
        self._since_fs = 0  # when it began; between two steps when the last one ended
        self._is_waking = False
        self._turn = 0  # what was put down for another turn is void

    @property
    def running(self) -> int:
        """Requests with a seat."""
        return self.batcher.running

    @property
    def waiting(self) -> int:
        """Requests without one."""
        outside = len(self._door) + len(self._hall)
        if self.lobby is not None:
            outside += len(self.lobby)
        return self.batcher.waiting + outside

    def __contains__(self, work_id: str) -> bool:
        """Whether a request is there."""
        if work_id in self._said or work_id in self._unsaid or self._is_outside(work_id):
            return True
        return self.lobby is not None and work_id in self.lobby

    def left(self, work_id: str) -> int:
        """How many tokens a request still gets."""
        at_door = self._door.get(work_id) or self._hall.get(work_id)
        if at_door is None and self.lobby is not None:
            at_door = self.lobby.get(work_id)
        return at_door.output_tokens if at_door else self.batcher.left(work_id)

    def add(self, work: Work) -> None:
        """A request has come."""
        if self.lobby is not None:
            self.lobby.add(work)
        else:
            self.enter(work)

    def enter(self, work: Work) -> None:
        """It is at the door, with all that it needs."""
        self._door[work.id] = work
        run = self._run
        if run is None:
            self._wake()
        elif run.steps > 1:
            self._shorten(run)

    def abort(self, work_id: str) -> None:
        """Nobody wants it any more; a step that it is in still takes its time."""
        if self._is_outside(work_id):
            self._door.pop(work_id, None)
            self._hall.pop(work_id, None)
            if self.lobby is not None:
                self.lobby.gone(work_id)
        elif self.lobby is not None and work_id in self.lobby:
            self.lobby.drop(work_id)
        else:
            self.sync()
            self._forget(work_id)

    def die(self) -> None:
        """All is lost at once."""
        self.sync()
        if self.lobby is not None:
            self.lobby.close()
        self._door.clear()
        self._hall.clear()
        for work_id in [*self._said, *sorted(self._unsaid)]:
            self._forget(work_id)
        self._step = self._run = None
        self._turn += 1
        self._is_waking = False

    def sync(self) -> None:
        """Bring the scheduler to the present, if the engine has jumped beyond it."""
        run = self._run
        if run is None or run.steps == 1:
            return
        ended = self._ended(run)
        self._turn += 1
        if ended:
            self._commit_run(run, ended, self._run_fs(run, ended))
            if ns_after(self._since_fs) == self._timeline.now_ns:  # the next is still to come
                self._run = None
                self._wake()
                return
            run = self.batcher.run()
            assert run is not None, "a decision that repeats"
        self._run = Run(run.sequences, run.cached_tokens, 1)
        self._expect_end(self._run_fs(self._run, 1))

    def _ended(self, run: Run) -> int:
        """How many steps of a run have ended, the last one not counted.

        A step that ends at this very instant has ended only if its turn has come.
        """
        until_ns = self._timeline.now_ns - (self._timeline.rank < self._ends)
        within_fs = until_ns * FS_IN_NS - self._since_fs
        return self.pace.steps_within(
            run.sequences, run.cached_tokens, run.steps - 1, within_fs, self._more_fs
        )

    def _run_fs(self, run: Run, steps: int) -> int:
        return self.pace.run_fs(run.sequences, run.cached_tokens, steps, self._more_fs)

    def _shorten(self, run: Run) -> None:
        """The run ends with the step that goes on, for then there is more to decide."""
        ended = self._ended(run)
        took_fs = self._run_fs(run, ended)
        if ended and ns_after(self._since_fs + took_fs) == self._timeline.now_ns:
            self.sync()  # none goes on: the next is decided at the end of this instant
            return
        self._turn += 1
        run.steps = ended + 1
        self._expect_end(self._run_fs(run, run.steps))

    def _wake(self) -> None:
        """Decide at this instant, after all that still happens in it."""
        if self._step is None and self._run is None and not self._is_waking:
            self._is_waking = True
            self._timeline.at(self._timeline.now_ns, self._begins, self._begin, self._turn)

    def _begin(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._is_waking = False
        self._let_in()
        now_ns = self._timeline.now_ns
        if ns_after(self._since_fs) != now_ns:  # it was idle; else it goes on where it was
            self._since_fs = now_ns * FS_IN_NS
        if self._jumps and self.pace.is_straight and self._may_jump():
            run = self._run = self.batcher.run()
            if run is not None:
                run.steps = 1 if self._hall else run.steps
                if self.lobby is not None:
                    self._more_fs = self.lobby.more_fs(self.batcher.running_ids, self.pace)
                self._expect_end(self._run_fs(run, run.steps))
                return
        step = self.batcher.decide()
        self.preemptions += len(step.preempted)
        for admitted in step.admitted:
            self._listener.admitted(admitted.id, admitted.cached_tokens)
        if step.chunks:
            self._expect(step)

    def _may_jump(self) -> bool:
        return self.speculator is None or self.speculator.is_off(self.batcher.running)

    def _expect(self, step: Step) -> None:
        """The decided step begins, with guesses where they pay."""
        more_fs = 0
        if self.lobby is not None:
            more_fs = self.lobby.more_fs([chunk.id for chunk in step.chunks], self.pace)
        took_fs = self.pace.step_fs(step)
        if self.speculator is not None:
            step, drafts_fs = self.speculator.guessed(step, took_fs)
            took_fs = self.pace.step_fs(step) + drafts_fs
        self._step = step
        self._expect_end(took_fs + more_fs)

    def _let_in(self) -> None:
        """Whoever is at the door is known to the scheduler from now on.

        Where it is `ahead`, this step was decided when the last one began: whoever has come since
        is in the next one. Where nothing runs nothing was decided.
        """
        if not (self._door or self._hall):
            return
        if self._ahead and (self._said or self._unsaid):
            entering, self._hall, self._door = self._hall, self._door, {}
        else:
            entering, self._hall, self._door = {**self._hall, **self._door}, {}, {}
        for work in entering.values():
            if self.speculator is not None:
                self.speculator.enters(work.id, work.adapter, work.tenant)
            self.batcher.add(
                work.id, work.prompt_tokens, work.output_tokens, work.hashes, work.priority,
                work.brought,
            )  # fmt: skip
        self._unsaid.update(entering)

    def _is_outside(self, work_id: str) -> bool:
        return work_id in self._door or work_id in self._hall

    def _expect_end(self, after_fs: int) -> None:
        ends_ns = ns_after(self._since_fs + after_fs)
        self._timeline.at(ends_ns, self._ends, self._end, (self._turn, after_fs))

    def _end(self, what: tuple[int, int]) -> None:
        turn, took_fs = what
        if turn != self._turn:
            return
        step, run = self._step, self._run
        self._step = self._run = None
        if step is not None:
            self._commit(step, took_fs)
        else:
            assert run is not None, "what ends has begun"
            self._commit_run(run, run.steps, took_fs)
            for work_id in self.batcher.complete:
                self._finish(work_id)
        if self._said or self._unsaid or self._door or self._hall:
            self._wake()

    def _commit(self, step: Step, took_fs: int) -> None:
        """A step has ended."""
        if self.meter is not None:
            self.meter.step(step, took_fs)
        if self.speculator is None:
            self.batcher.commit(step)
        else:
            self.batcher.commit(step, self.speculator.held_in(step))
            if step.decodes:
                self.speculator.stepped(step.tokens, took_fs / FS)
        self.steps += 1
        self.busy_fs += took_fs
        said = [chunk.id for chunk in step.chunks if chunk.samples]
        if self._gaps is not None:
            there = [one for one in said if one in self]
            self._gaps.saw(there, self._since_fs, took_fs, took_fs, took_fs)
        self._since_fs += took_fs
        if self._unsaid:
            begun = [one for one in said if one in self._unsaid]
            self._unsaid.difference_update(begun)
            self._said.update(dict.fromkeys(begun))
            for work_id in begun:
                self._listener.first_token(work_id)
        for work_id in said:  # its client may have left, even at its first token
            if work_id in self._said and not self.batcher.left(work_id):
                self._finish(work_id)

    def _commit_run(self, run: Run, times: int, took_fs: int) -> None:
        """So many of a run's steps have ended. Of one step the pace may be another one by now."""
        if self.meter is not None:
            self.meter.run(run, times, took_fs)
        if self._gaps is not None:
            first_fs = last_fs = took_fs
            if times > 1:
                first_fs = self._run_fs(run, 1)
                last_fs -= self._run_fs(run, times - 1)
            self._gaps.saw(self.batcher.running_ids, self._since_fs, took_fs, first_fs, last_fs)
        self.batcher.advance(times)
        self.steps += times
        self.busy_fs += took_fs
        self._since_fs += took_fs

    def _finish(self, work_id: str) -> None:
        self._forget(work_id)
        self._listener.finished(work_id)

    def _forget(self, work_id: str) -> None:
        self._said.pop(work_id, None)
        self._unsaid.discard(work_id)
        self.gap_fs = self._gaps.pop(work_id) if self._gaps is not None else 0
        if self.speculator is not None:
            self.speculator.leaves(work_id)
        self.batcher.finish(work_id)
        if self.lobby is not None:
            self.lobby.gone(work_id)
