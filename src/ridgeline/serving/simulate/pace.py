"""How long steps take, in whole femtoseconds: so fine that a sum of millions of them is exact.

The step-time model is made of floats. Here its constants are rounded once, to 1e-15 s, and from
then on there are only whole numbers. A decode step of n sequences takes A(n) + B x the tokens they
have cached, a line; so k such steps in a row have a sum in closed form, and a simulator that jumps
over them arrives at the very nanosecond at which one that does not arrives.
"""

from ridgeline.physics.step_table import StepTable, TableSteps
from ridgeline.physics.step_time import StepTime
from ridgeline.physics.straight_steps import FS, StraightSteps, straight_steps
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.batch import Step

FS_IN_NS = 10**6


def ns_after(fs: int) -> int:
    """The first whole nanosecond that is not before."""
    return -(-fs // FS_IN_NS)


class Pace:
    """The step times of one machine; `slower` stretches all of them (a slow node)."""

    def __init__(self, machine: Machine, slower: float = 1.0) -> None:
        if not 0 < slower < 1e6:
            raise ValueError(f"a machine is not {slower} times as slow")
        self._machine = machine
        self._slower = slower
        straight = _straight(machine)
        self._straight = straight.slower(slower) if straight and slower != 1.0 else straight

    @property
    def is_straight(self) -> bool:
        """Whether decode steps are on a line: without that nothing can be jumped over."""
        return self._straight is not None

    def step_fs(self, step: Step) -> int:
        """One step. A guess costs its products; its attention hides in the reads of the cache."""
        decodes = cached = prompts = pairs = 0
        for chunk in step.chunks:
            count = chunk.count
            if count == 1 and chunk.samples:
                decodes += 1
                cached += chunk.start
            elif chunk.guesses:
                decodes += 1
                cached += chunk.start
                prompts += chunk.guesses
            else:
                prompts += count
                pairs += count * (chunk.start + count // 2)
        return self._counted_fs(decodes, cached, prompts, pairs)

    def prompt_fs(self, start: int, tokens: int) -> int:
        """A step that computes so many prompt tokens behind `start`, and nothing else."""
        return self._counted_fs(0, 0, tokens, tokens * (start + tokens // 2))

    def stretched_fs(self, fs: int) -> int:
        """What takes so long on a machine as fast as it should be."""
        return fs if self._slower == 1.0 else round(fs * self._slower)

    def _counted_fs(self, decodes: int, cached: int, prompts: int, pairs: int) -> int:
        if self._straight is not None:
            return self._straight.step_fs(decodes, cached, prompts, pairs)
        step_s = self._machine.steps.step_s(
            decodes or None,
            cached if decodes else None,
            prompts or None,
            pairs / prompts if prompts else None,
        )
        return round(float(step_s) * self._slower * FS)

    def run_fs(self, sequences: int, cached_tokens: int, steps: int, more_fs: int = 0) -> int:
        """So many decode steps in a row, of sequences with so many cached tokens at first.

        Each of them takes `more_fs` longer.
        """
        straight = self._straight
        assert straight is not None, "only a line has a sum in closed form"
        more = sequences * (steps * (steps - 1) // 2)
        once = straight.step_fs(sequences, 0, 0, 0) + more_fs
        return steps * once + straight.cached_fs * (steps * cached_tokens + more)

    def steps_within(
        self, sequences: int, cached_tokens: int, steps: int, within_fs: int, more_fs: int = 0
    ) -> int:
        """How many of a run's steps have ended by then."""
        low, high = 0, steps
        while low < high:
            middle = (low + high + 1) // 2
            if self.run_fs(sequences, cached_tokens, middle, more_fs) <= within_fs:
                low = middle
            else:
                high = middle - 1
        return low


def _straight(machine: Machine) -> StraightSteps | TableSteps | None:
    steps = machine.steps
    if isinstance(steps, StepTable):
        return steps.in_fs
    if isinstance(steps, StepTime):
        return straight_steps(steps)
    if isinstance(steps, Plain):
        prompt_s = 1 / steps.prefill_tokens_per_s
        fixed, sequence, prompt = (
            round(value * FS) for value in (steps.fixed_s, steps.sequence_s, prompt_s)
        )
        # Each token costs what a prompt's does, and a sequence as much less.
        return StraightSteps(0, 0, prompt, sequence - prompt, fixed, 0, 0)
    return None
