"""What bound an engine, step by step: blocks, seats, or what its steps are made of.

Each step's time is told apart, in whole femtoseconds, by the terms of the step-time law: reading
weights and caches (bandwidth), arithmetic (compute), and the rest, i.e. what an engine adds, drafts
of guesses, adapters that are fetched (fixed). A step in which somebody waits for blocks, or lost
them, is bound by the cache; one with all seats taken and somebody waiting by the seats. What counts
is who had a seat when the step was decided. A run of decodes has its sum in closed form, so that a
simulator that jumps counts what one counts that does not.
"""

from collections.abc import Callable

from ridgeline.physics.step_time import StepTime
from ridgeline.physics.straight_steps import FS, StraightSteps, straight_steps
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.batch import Step
from ridgeline.serving.policy.runs import Run
from ridgeline.serving.simulate.virtual_engine import VirtualEngine

#: What a meter counts, in order: time that lacked blocks, time that lacked seats, what all other
#: steps were made of, and those of which nobody knows it (a table of measured times).
COUNTS = ("kv", "seats", "bandwidth", "compute", "fixed", "untold")
_KV, _SEATS, _BANDWIDTH, _COMPUTE, _FIXED, _UNTOLD = range(6)

#: Bandwidth and compute in a step, or in so many alike. It gets the decodes and the prompt tokens
#: of one step, how many steps, all their cached tokens, and all pairs of prompt tokens.
Terms = Callable[[int, int, int, int, int], tuple[int, int]]


class Meter:
    """Told of each step that has ended; `counts` are femtoseconds."""

    def __init__(self, terms: Terms | None, engine: VirtualEngine) -> None:
        self.counts = [0] * len(COUNTS)
        self._terms = terms
        self._engine = engine
        self._batcher = engine.batcher

    def step(self, step: Step, took_fs: int) -> None:
        """One step has ended, and is not committed yet."""
        limits, seated = self._batcher.limits, len(step.chunks)
        lacks_blocks = bool(step.preempted)
        if self._batcher.waiting and seated < limits.max_seqs and not lacks_blocks:
            lacks_blocks = step.tokens < limits.max_batched_tokens
        if lacks_blocks:
            self.counts[_KV] += took_fs
            return
        decodes = cached = prompts = pairs = 0
        for chunk in step.chunks:
            if chunk.count == 1 and chunk.samples:
                decodes += 1
                cached += chunk.start
            elif chunk.guesses:
                decodes += 1
                cached += chunk.start
                prompts += chunk.guesses
            else:
                prompts += chunk.count
                pairs += chunk.count * (chunk.start + chunk.count // 2)
        self._add((decodes, prompts, 1, cached, pairs), took_fs, seated)

    def run(self, run: Run, times: int, took_fs: int) -> None:
        """So many steps of a run have ended, and are not committed yet."""
        cached = times * run.cached_tokens + run.sequences * (times * (times - 1) // 2)
        self._add((run.sequences, 0, times, cached, 0), took_fs, run.sequences)

    def _add(self, work: tuple[int, int, int, int, int], took_fs: int, seated: int) -> None:
        batcher, counts = self._batcher, self.counts
        if batcher.waiting and seated >= batcher.limits.max_seqs:
            counts[_SEATS] += took_fs
            return
        if self._terms is None:
            counts[_UNTOLD] += took_fs
            return
        bandwidth, compute = map(self._engine.pace.stretched_fs, self._terms(*work))
        if bandwidth + compute > took_fs:  # it became slow within the step
            compute = took_fs * compute // (bandwidth + compute)
            bandwidth = took_fs - compute
        counts[_BANDWIDTH] += bandwidth
        counts[_COMPUTE] += compute
        counts[_FIXED] += took_fs - bandwidth - compute


def terms_of(machine: Machine) -> Terms | None:
    """How the steps of a machine are told apart; None where nothing is known of them."""
    steps = machine.steps
    if isinstance(steps, Plain):
        return _plain(steps)
    if isinstance(steps, StepTime):
        straight = straight_steps(steps)
        return _other(steps) if straight is None else _straight(straight)
    return None


def _plain(steps: Plain) -> Terms:
    """Prompts are arithmetic; what a step and a sequence cost nobody told apart."""
    prompt_fs = round(FS / steps.prefill_tokens_per_s)
    return lambda _decodes, prompts, times, _cached, _pairs: (0, times * prompt_fs * prompts)


def _straight(steps: StraightSteps) -> Terms:
    def terms(decodes: int, prompts: int, times: int, cached: int, pairs: int) -> tuple[int, int]:
        tokens = decodes + prompts
        added = steps.ring_fs * tokens + steps.sequence_fs * decodes + steps.fixed_fs
        longer = steps.step_fs(decodes, 0, prompts, 0) - added
        reads, products = steps.cached_fs * cached, steps.attended_fs * pairs
        if steps.product_fs * tokens >= longer:
            return reads, times * longer + products
        return times * longer + reads, products

    return terms


def _other(steps: StepTime) -> Terms:
    """Of steps that are not on a line: there are no runs of them."""

    def terms(decodes: int, prompts: int, _times: int, cached: int, pairs: int) -> tuple[int, int]:
        work = steps.work(
            decodes or None,
            cached if decodes else None,
            prompts or None,
            pairs / prompts if prompts else None,
        )
        reads, products = steps.weights_s(work.read_bytes), steps.compute_s(work.flop)
        cache = 0.0 if work.cached_bytes is None else work.cached_bytes / steps.cache_bytes_per_s
        flop = work.prompt_attention_flop
        attention = 0.0 if flop is None else steps.compute_s(flop)
        if steps.coefficients.overlaps:
            reads, products = reads + cache, products + attention
            return (_fs(reads), 0) if reads > products else (0, _fs(products))
        if reads > products:
            return _fs(reads + cache), _fs(attention)
        return _fs(cache), _fs(products + attention)

    return terms


def _fs(seconds: float) -> int:
    return round(float(seconds) * FS)
