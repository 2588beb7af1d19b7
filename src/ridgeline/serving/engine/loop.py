"""The engine: one step looks at what waits, asks the batch policy, runs the model, samples.

No sockets, and no clock that decides what is said: `process` feeds it messages and sends what it
returns; tests call it directly. Token ids live here, counts and hashes in `policy.batch`.
"""

import time
from collections.abc import Callable

import msgspec

from ridgeline.errors import ModelError
from ridgeline.launch.start_clock import StartClock
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.constraint import Constraints, Matcher
from ridgeline.serving.engine.draw import open_draws
from ridgeline.serving.engine.lines import Line, draw_lines
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    Output,
    Sampling,
    Started,
    Stats,
    Stepped,
)
from ridgeline.serving.engine.model import Model, cache_dtype, stored_dtype
from ridgeline.serving.engine.model_files import ModelFiles, open_model
from ridgeline.serving.engine.runner import Rows, Runner, use_threads
from ridgeline.serving.engine.sampler import Sampler
from ridgeline.serving.engine.sequence import Continuation
from ridgeline.serving.engine.speculator import DRAFTS, Speculator
from ridgeline.serving.policy.batch import Batcher, Chunk, Limits, Step
from ridgeline.serving.policy.blocks import BlockBook


class Engine:
    """Weights, cache and requests of one replica.

    `add` and `abort` between steps; `step` while `busy`. `clock` is at the stage "weights". Raises
    ModelError when the model cannot be loaded or its cache would not hold a single sequence.
    """

    def __init__(
        self,
        config: EngineConfig,
        clock: StartClock | None = None,
        *,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._now_s = now_s
        self._clock = clock or StartClock(time.monotonic(), stage="weights")
        self._config = config
        self._threads = use_threads(config.threads)
        files = open_model(config.model, cache_dir=config.cache_dir)
        self._architecture = files.architecture
        tensors = files.tensors(stored_dtype(config.dtype))
        self._clock.begin("load")
        model = Model(
            files.architecture, tensors, config.dtype,
            cache_dtype=cache_dtype(config.dtype, config.kv_cache_dtype), threads=self._threads,
        )  # fmt: skip
        del tensors
        self._arena = _arena(files, config)
        self._max_model_len = self._longest(config)
        book = BlockBook(self._arena.blocks, config.block_size, caching=config.prefix_caching)
        limits = Limits(min(config.max_seqs, config.max_batched_tokens), config.max_batched_tokens)
        self._batcher = Batcher(limits, book)
        self._book = book
        self._runner = Runner(model, self._arena)
        vocab = files.architecture.vocab
        self._sampler = Sampler(
            vocab, files.architecture.eos_ids, draws=open_draws(vocab, self._threads)
        )
        self._files = files
        self._constraints: Constraints | None = None
        self._requests: dict[str, dict[int, Continuation]] = {}
        self._sequences: dict[str, Continuation] = {}
        self._unborn: dict[str, list[Continuation]] = {}  # n > 1, until the prompt is computed
        self._failed: list[Output] = []
        self._stats = Stats()
        self._kernels = model.kernels
        self._speculator: Speculator | None = None
        self._warm_up()
        if config.speculation != "off":
            self._speculator = Speculator(DRAFTS[config.speculation], config.draft_tokens)

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self._sequences or self._failed)

    @property
    def files(self) -> ModelFiles:
        """The model's tokenizer and template, for callers without a front."""
        return self._files

    def started(self) -> Started:
        """What the front needs to know, and how long each stage of the start took."""
        return Started(
            max_model_len=self._max_model_len,
            blocks=self._arena.blocks,
            block_size=self._config.block_size,
            vocab_size=self._architecture.vocab,
            dtype=self._config.dtype,
            threads=self._threads,
            kernels=self._kernels,
            stages_s=self._clock.spent_s,
        )

    def add(self, request: Add) -> None:
        """Queue a request. One whose rules cannot be kept fails in the next step, alone."""
        try:
            first, *siblings = [self._continuation(request, i) for i in range(request.n)]
        except ValueError as error:
            self._failed += [
                Output(request.id, index, [], finish="error", error=str(error))
                for index in range(request.n)
            ]
            return
        chain = self._chain(first)
        left = request.sampling.max_tokens - len(request.resumed)
        self._batcher.add(first.id, len(first.tokens), left, chain, request.priority)
        self._sequences[first.id] = first
        self._requests[request.id] = {0: first}
        if siblings:
            self._unborn[request.id] = siblings
        self._stats.prompt_tokens += len(first.tokens)

    def abort(self, gone: Abort) -> None:
        """Forget a request or one of its continuations; unknown ones have ended already."""
        continuations = self._requests.get(gone.id, {})
        if gone.index is not None and gone.id in self._unborn:
            unborn = self._unborn[gone.id]
            unborn[:] = [sibling for sibling in unborn if sibling.index != gone.index]
        for index in [gone.index] if gone.index is not None else list(continuations):
            if index in continuations:
                self._end(continuations[index])

    def step(self) -> Stepped:
        """Decide, run, sample, and say what came out."""
        began_s = self._now_s()
        outputs, self._failed = self._failed, []
        step = self._batcher.decide()
        self._note(step)
        if step.chunks:
            if guesses := self._guesses(step):
                step = self._batcher.guess(step, {one: len(of) for one, of in guesses.items()})
            outputs += self._run(step, guesses)
            if self._speculator is not None and step.decodes:
                self._speculator.stepped(step.tokens, self._now_s() - began_s)
        return Stepped(outputs, self._snapshot())

    def _guesses(self, step: Step) -> dict[str, list[int]]:
        """What may be guessed in this step, by sequence."""
        if self._speculator is None or not step.decodes:
            return {}
        return self._speculator.guesses([self._sequences[chunk.id] for chunk in step.chunks])

    def _run(self, step: Step, guesses: dict[str, list[int]]) -> list[Output]:
        chunks = [
            (
                self._sequences[chunk.id],
                chunk,
                guesses[chunk.id][: chunk.guesses] if chunk.guesses else [],
            )
            for chunk in step.chunks
        ]
        logits = self._runner.run(
            [self._rows(*each) for each in chunks],
            [(copy.source, copy.target) for copy in step.copies],
        )
        lines = self._who_samples(chunks)
        draw_lines(self._sampler, lines, logits, self._architecture.eos_ids)
        self._batcher.commit(step, {line.sequence.id: line.held for line in lines if line.guesses})
        for line in lines:
            if line.sequence.id not in self._sequences:
                self._branch(line.sequence)
        return [self._advance(line) for line in lines]

    def _rows(self, sequence: Continuation, chunk: Chunk, guesses: list[int]) -> Rows:
        known = sequence.tokens[chunk.start : chunk.start + chunk.count - chunk.guesses]
        return Rows(
            known + guesses if guesses else known,
            chunk.start,
            self._batcher.table(chunk.id),
            1 + chunk.guesses if chunk.samples else 0,
        )

    def _who_samples(self, chunks: list[tuple[Continuation, Chunk, list[int]]]) -> list[Line]:
        """Each sampling sequence's rows; a prompt with n > 1 samples its row n times."""
        lines = []
        row = 0
        for sequence, chunk, guesses in chunks:
            if not chunk.samples:
                continue
            lines.append(Line(sequence, row, guesses))
            if self._unborn and sequence.index == 0:
                siblings = self._unborn.pop(sequence.add.id, [])
                lines += [Line(sibling, row) for sibling in siblings]
            row += 1 + chunk.guesses
        return lines

    def _advance(self, line: Line) -> Output:
        """What a continuation said in this step becomes known to the policy, and to its reader."""
        sequence = line.sequence
        first = sequence.generated - len(sequence.add.resumed) == len(line.said)
        self._stats.generation_tokens += len(line.said)
        if line.guesses:
            self._stats.drafts += 1
            self._stats.draft_tokens += len(line.guesses)
            self._stats.accepted_tokens += line.held
        if line.finish:
            self._end(sequence)
        elif chain := self._chain(sequence):
            self._batcher.extend(sequence.id, chain)
        return Output(
            sequence.add.id,
            sequence.index,
            line.said,
            line.logprobs,
            line.finish,
            sequence.cached_tokens if first else 0,
            line.error,
        )

    def _branch(self, child: Continuation) -> None:
        """A sibling gets the prompt's blocks, shared until one of them writes."""
        family = self._requests[child.add.id]
        parent = family[0]
        family[child.index] = child
        self._sequences[child.id] = child
        child.hashes, child.digest = parent.hashes, parent.digest
        self._batcher.fork(parent.id, child.id, child.add.sampling.max_tokens)

    def _end(self, sequence: Continuation) -> None:
        self._batcher.finish(sequence.id)
        del self._sequences[sequence.id]
        family = self._requests[sequence.add.id]
        del family[sequence.index]
        if not family:
            del self._requests[sequence.add.id]
            self._unborn.pop(sequence.add.id, None)

    def _continuation(self, add: Add, index: int) -> Continuation:
        """Raises ValueError where its grammar or a token id in its rules is not possible."""
        state = self._sampler.open(add.sampling, add.prompt, index, self._matcher(add.sampling))
        for token in add.resumed:
            state.accept(token)
        tokens = add.prompt + add.resumed
        return Continuation(add, index, tokens, state, digest=b"prefix" + add.salt)

    def _chain(self, sequence: Continuation) -> list[bytes]:
        return sequence.chain(self._config.block_size) if self._config.prefix_caching else []

    def _matcher(self, rules: Sampling) -> Matcher | None:
        if rules.grammar is None:
            return None
        if self._constraints is None:
            # Built with the first use: it reads the whole vocabulary.
            self._constraints = Constraints(
                self._files.tokenizer.to_json(),
                self._architecture.vocab,
                self._architecture.eos_ids,
            )
        return self._constraints.matcher(rules.grammar)

    def _note(self, step: Step) -> None:
        self._stats.steps += bool(step.chunks)
        self._stats.preemptions += len(step.preempted)
        for admitted in step.admitted:
            sequence = self._sequences[admitted.id]
            self._stats.prefix_queries += len(sequence.tokens)
            self._stats.prefix_hits += admitted.cached_tokens
            sequence.cached_tokens = min(admitted.cached_tokens, len(sequence.add.prompt))

    def _snapshot(self) -> Stats:
        stats = self._stats
        stats.running, stats.waiting = self._batcher.running, self._batcher.waiting
        stats.kv_usage = self._book.usage
        return msgspec.structs.replace(stats)

    def _longest(self, config: EngineConfig) -> int:
        room = self._arena.blocks * config.block_size
        longest = min(self._architecture.context, room)
        if config.max_model_len == 1:
            raise ModelError(
                "a sequence of one token has no room for an answer",
                where="max_model_len",
                remedy="2 or more, or 0 for what the model allows",
            )
        if config.max_model_len > longest:
            raise ModelError(
                f"{config.max_model_len} tokens are more than the {longest} that the model "
                f"(context {self._architecture.context}) and the cache ({room}) allow",
                where="max_model_len",
                remedy=f"{longest} or less, or a larger kv_cache",
            )
        return config.max_model_len or longest

    def _warm_up(self) -> None:
        """Generate two real tokens, so that every kernel is compiled before a client waits."""
        self._clock.begin("warm-up")
        self.add(Add("warm-up", [0] * min(32, self._max_model_len - 2), Sampling(max_tokens=2)))
        while self.busy:
            self.step()
        self._stats = Stats()
        self._clock.end()


def _arena(files: ModelFiles, config: EngineConfig) -> Arena:
    """The cache that the settings ask for."""
    try:
        return Arena.of_size(
            files.architecture, cache_dtype(config.dtype, config.kv_cache_dtype),
            config.kv_cache_bytes, config.block_size,
        )  # fmt: skip
    except ValueError as error:
        raise ModelError(str(error), where="kv_cache", remedy="a larger kv_cache") from error
    except MemoryError as error:
        raise ModelError(
            f"{config.kv_cache_bytes / 1e9:,.0f} GB are more than this machine can give",
            where="kv_cache",
            remedy="a smaller kv_cache",
        ) from error
