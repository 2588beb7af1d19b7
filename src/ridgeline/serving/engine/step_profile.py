"""Where a step's milliseconds go: one engine in this process, its stages timed one by one.

The law of this file: the engine carries no timers for it; calls are wrapped from outside, and only
in the engine that is profiled. A stage's time is its own: what it spends in another stage counts
there, so stages add up to the step. `ridgeline bench engine --profile` calls it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ridgeline.kernels.decoder import Batch
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import block_bytes
from ridgeline.serving.engine.loop import Engine
from ridgeline.serving.engine.messages import Abort, Add, Sampling
from ridgeline.serving.engine.model import stored_dtype

WEIGHT_BYTES = {"fp32": 4, "bf16": 2, "int8": 1}
BEFORE = ("schedule", "batch build")
KERNELS = ("embed", "norm", "quantise", "qkv", "rope", "attention", "out", "gate_up", "down",
           "head")  # fmt: skip
REST = "model, the rest"
AFTER = ("sampling", "emit")
SETTLING_STEPS = 4


class Stopwatch:
    """Seconds by stage, each without what was spent in stages inside it."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._now_s = now_s
        self._inside_s: list[float] = []

    def timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def run(*args: Any, **named: Any) -> Any:
            began_s = self._now_s()
            self._inside_s.append(0.0)
            try:
                return call(*args, **named)
            finally:
                took_s = self._now_s() - began_s
                own_s = took_s - self._inside_s.pop()
                self.seconds[stage] = self.seconds.get(stage, 0.0) + own_s
                if self._inside_s:
                    self._inside_s[-1] += took_s

        return run


@dataclass(slots=True)
class Work:
    """What the profiled steps did: rows, rows whose logits were wanted, and their attention.

    `pairs` counts the keys that each row attends to, `cached` the keys and values that are read
    once for each sequence and step.
    """

    steps: int = 0
    rows: int = 0
    wanted: int = 0
    pairs: int = 0
    cached: int = 0

    def note(self, batch: Batch) -> None:
        """One more step."""
        lens, contexts = batch.lens.astype(np.int64), batch.contexts.astype(np.int64)
        self.steps += 1
        self.rows += int(lens.sum())
        self.wanted += len(batch.wanted)
        self.pairs += int((lens * contexts - lens * (lens - 1) // 2).sum())
        self.cached += int(contexts.sum())


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage's seconds over the whole profile; bytes it must read and FLOPs, where known."""

    name: str
    seconds: float
    bytes: float | None = None
    flop: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Some steps of one engine. `detail` says why the model's stages are not told apart, if so."""

    kernels: str
    dtype: str
    threads: int
    wall_s: float
    work: Work
    stages: list[Stage]
    detail: str = ""

    @property
    def total_s(self) -> float:
        """All stages together; below `wall_s` by what the profiler itself takes."""
        return sum(stage.seconds for stage in self.stages)


class Profiler:
    """An engine with wrapped calls. It is not to serve anybody afterwards."""

    def __init__(self, engine: Engine, architecture: Architecture) -> None:
        self.engine = engine
        self.architecture = architecture
        self.watch = Stopwatch()
        self.work = Work()
        self._chance = np.random.default_rng(0)
        self._model = engine._runner.model
        # What is left of a step when these are taken away is `emit`.
        for owner, call, stage in (
            (engine._batcher, "decide", "schedule"),
            (engine._batcher, "commit", "schedule"),
            (engine._runner, "run", "batch build"),
            (self._model, "forward", "model"),
            (engine._sampler, "sample", "sampling"),
        ):
            setattr(owner, call, self.watch.timed(stage, getattr(owner, call)))
        forward = self._model.forward

        def noted(batch: Batch, *rest: Any) -> Any:
            self.work.note(batch)
            return forward(batch, *rest)

        vars(self._model)["forward"] = noted
        self._step = self.watch.timed("emit", self._step_and_encode)

    def decodes(self, batch: int, context: int, steps: int) -> Profile:
        """`steps` steps in which `batch` sequences of about `context` tokens decode."""
        settled = self._admit(batch, context, steps)
        self._reset()
        began_s = time.perf_counter()
        for _ in range(steps):
            self._step()
        wall_s = time.perf_counter() - began_s
        for name in settled:
            self.engine.abort(Abort(name))
        return self._profile(wall_s)

    def prompts(self, length: int, count: int) -> Profile:
        """`count` prompts of `length` tokens, one after the other, each to its first token."""
        rules = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)
        drawn = [self._tokens(length) for _ in range(count + 1)]
        self._finish(Add("settle", drawn[0], rules))
        self._reset()
        began_s = time.perf_counter()
        for at, tokens in enumerate(drawn[1:]):
            self._finish(Add(f"prompt-{at}", tokens, rules))
        return self._profile(time.perf_counter() - began_s)

    def _admit(self, batch: int, context: int, steps: int) -> list[str]:
        """Sequences that decode, the last prompt a few steps ago; their names."""
        names = [f"decode-{at}" for at in range(batch)]
        # Early ones decode while later ones' prompts are computed; none may end before the last.
        rules = Sampling(
            max_tokens=tokens_spoken(batch, context, steps), temperature=0.0, ignore_eos=True
        )
        for name in names:
            self.engine.add(Add(name, self._tokens(context), rules))
        quiet = 0
        while quiet < SETTLING_STEPS:
            assert self.engine.busy, "all sequences ended before the last one's prompt was computed"
            self.work = Work()
            self._step()
            quiet = quiet + 1 if self.work.rows == self.work.wanted == batch else 0
        return names

    def _finish(self, add: Add) -> None:
        self.engine.add(add)
        while self.engine.busy:
            self._step()

    def _step_and_encode(self) -> bytes:
        return msgspec.msgpack.encode(self.engine.step())

    def _tokens(self, count: int) -> list[int]:
        drawn: list[int] = self._chance.integers(0, self.architecture.vocab, count).tolist()
        return drawn

    def _reset(self) -> None:
        self.watch.seconds.clear()
        self.work = Work()
        if (kernels := self._kernel_clock()) is not None:
            kernels()

    def _kernel_clock(self) -> Callable[[], dict[str, float]] | None:
        """The compiled decoder's own clock; the portable one has none."""
        return getattr(self._model.decoder, "profile", None)

    def _profile(self, wall_s: float) -> Profile:
        started = self.engine.started()
        clock = self._kernel_clock()
        kernels = clock() if clock is not None else {}
        seconds = {**self.watch.seconds, **kernels}
        seconds[REST] = seconds.get("model", 0.0) - sum(kernels.values())
        wanted = costs(self.architecture, started.dtype, self._model.cache_dtype, self.work)
        names = [*BEFORE, *((*KERNELS, REST) if kernels else ("model",)), *AFTER]
        stages = [Stage(name, seconds.get(name, 0.0), *wanted.get(name, ())) for name in names]
        alone = f"the model is one stage: {started.kernels} does not tell its own apart"
        shown = [stage for stage in stages if stage.seconds or stage.name != "quantise"]
        return Profile(
            started.kernels,
            started.dtype,
            started.threads,
            wall_s,
            self.work,
            shown,
            "" if kernels else alone,
        )


def tokens_spoken(batch: int, context: int, steps: int) -> int:
    """How many tokens a sequence may say before all prompts are computed and `steps` are done."""
    return batch * (context // 256 + 2) + steps + 2 * SETTLING_STEPS


def costs(
    a: Architecture, dtype: str, cache_dtype: str, work: Work
) -> dict[str, tuple[float, float]]:
    """Bytes and FLOPs of the products and of attention over all the steps.

    Each step reads each matrix once; a multiply and an add are two FLOPs. The head is never int8.
    """
    item, head_item = WEIGHT_BYTES[dtype], WEIGHT_BYTES[stored_dtype(dtype)]
    across = a.heads * a.head_dim
    matrices = {
        "qkv": a.hidden * (across + 2 * a.kv_heads * a.head_dim),
        "out": across * a.hidden,
        "gate_up": 2 * a.hidden * a.ffn,
        "down": a.ffn * a.hidden,
    }
    found = {
        name: (
            float(work.steps * a.layers * size * item),
            2.0 * work.rows * a.layers * size,
        )
        for name, size in matrices.items()
    }
    head = a.vocab * a.hidden
    found["head"] = float(work.steps * head * head_item), 2.0 * work.wanted * head
    kept = block_bytes(a, 16, cache_dtype) / 16
    found["attention"] = work.cached * kept, 4.0 * work.pairs * across * a.layers
    return found
