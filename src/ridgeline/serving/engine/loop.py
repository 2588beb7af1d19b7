"""The engine: one step looks at what waits, asks the batch policy, runs the model, samples.

No sockets and no clocks that decide anything: `process` feeds it messages and sends what it
returns; tests call it directly. Token ids live here, counts and hashes in `policy.batch`.
"""

import hashlib
import time
from array import array
from dataclasses import asdict, dataclass, field

from ridgeline.errors import ModelError
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.constraint import Constraints, Matcher
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    Output,
    Sampling,
    Started,
    Stats,
    Stepped,
)
from ridgeline.serving.engine.model import Model
from ridgeline.serving.engine.model_files import ModelFiles, open_model
from ridgeline.serving.engine.runner import Rows, Runner, use_threads
from ridgeline.serving.engine.sampler import Chosen, Sampler, State
from ridgeline.serving.policy.batch import Batcher, Chunk, Limits, Step
from ridgeline.serving.policy.blocks import BlockBook


@dataclass(slots=True)
class Continuation:
    """One sequence: a request's prompt and one of its `n` ways to go on.

    `tokens` holds prompt and generated ids. `hashes` counts the full blocks whose hash the
    policy knows; `digest` is the last of that chain.
    """

    add: Add
    index: int
    tokens: list[int]
    state: State
    digest: bytes
    hashes: int = 0
    cached_tokens: int = 0

    @property
    def id(self) -> str:
        """Its name in the policy."""
        return f"{self.add.id}#{self.index}"

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.add.prompt)


@dataclass(slots=True)
class _Counters:
    """The totals of `Stats`, by the same names."""

    steps: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


@dataclass(slots=True)
class _Sampled:
    """Rows of logits and whose they are, before and after sampling."""

    sequences: list[Continuation] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class Engine:
    """Weights, cache and requests of one replica.

    `add` and `abort` between steps; `step` while `busy`. Raises ModelError when the model
    cannot be loaded or its cache would not hold a single sequence.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._stages: dict[str, float] = {}
        self._config = config
        self._threads = use_threads(config.threads)
        began = time.monotonic()
        files = open_model(config.model, cache_dir=config.cache_dir)
        self._architecture = files.architecture
        model = Model(files.architecture, files.tensors(config.dtype), config.dtype)
        self._stages["weights"] = time.monotonic() - began
        self._arena = _arena(files, config)
        self._max_model_len = self._longest(config)
        book = BlockBook(self._arena.blocks, config.block_size, caching=config.prefix_caching)
        limits = Limits(min(config.max_seqs, config.max_batched_tokens), config.max_batched_tokens)
        self._batcher = Batcher(limits, book)
        self._book = book
        self._runner = Runner(model, self._arena)
        self._sampler = Sampler(files.architecture.vocab, files.architecture.eos_ids)
        self._files = files
        self._constraints: Constraints | None = None
        self._requests: dict[str, dict[int, Continuation]] = {}
        self._sequences: dict[str, Continuation] = {}
        self._unborn: dict[str, list[Continuation]] = {}  # n > 1, until the prompt is computed
        self._failed: list[Output] = []
        self._count = _Counters()
        self._kernels = model.linear_kernel
        self._warm_up()

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
            stages_s=self._stages,
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
        self._batcher.add(
            first.id, len(request.prompt), request.sampling.max_tokens, chain, request.priority
        )
        self._sequences[first.id] = first
        self._requests[request.id] = {0: first}
        if siblings:
            self._unborn[request.id] = siblings
        self._count.prompt_tokens += len(request.prompt)

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
        outputs, self._failed = self._failed, []
        step = self._batcher.decide()
        self._note(step)
        if step.chunks:
            outputs += self._run(step)
        return Stepped(outputs, self._stats())

    def _run(self, step: Step) -> list[Output]:
        chunks = [(self._sequences[chunk.id], chunk) for chunk in step.chunks]
        logits = self._runner.run(
            [self._rows(sequence, chunk) for sequence, chunk in chunks],
            [(copy.source, copy.target) for copy in step.copies],
        )
        sampled = self._who_samples(chunks)
        wanted = logits if len(sampled.rows) == len(logits) else logits[sampled.rows]
        chosen = self._sampler.sample(wanted, [one.state for one in sampled.sequences])
        self._batcher.commit(step)
        for sequence in sampled.sequences:
            if sequence.id not in self._sequences:
                self._branch(sequence)
        return [
            self._advance(sequence, token)
            for sequence, token in zip(sampled.sequences, chosen, strict=True)
        ]

    def _rows(self, sequence: Continuation, chunk: Chunk) -> Rows:
        end = chunk.start + chunk.count
        table = self._batcher.table(chunk.id)
        return Rows(sequence.tokens[chunk.start : end], chunk.start, table, chunk.samples)

    def _who_samples(self, chunks: list[tuple[Continuation, Chunk]]) -> _Sampled:
        """Each sampling row's sequence; a prompt with n > 1 samples its row n times."""
        sampled = _Sampled()
        row = 0
        for sequence, chunk in chunks:
            if not chunk.samples:
                continue
            family = [sequence]
            if sequence.index == 0:
                family += self._unborn.pop(sequence.add.id, [])
            sampled.sequences += family
            sampled.rows += [row] * len(family)
            row += 1
        return sampled

    def _advance(self, sequence: Continuation, chosen: Chosen) -> Output:
        """One more token of a continuation: known to the policy, perhaps its last."""
        cached = sequence.cached_tokens if not sequence.generated else 0
        if chosen.error:
            self._end(sequence)
            return Output(sequence.add.id, sequence.index, [], finish="error", error=chosen.error)
        sequence.tokens.append(chosen.token)
        self._count.generation_tokens += 1
        finish = self._finish(sequence, chosen.token)
        if finish:
            self._end(sequence)
        elif chain := self._chain(sequence):
            self._batcher.extend(sequence.id, chain)
        return Output(
            sequence.add.id,
            sequence.index,
            [chosen.token],
            logprobs=[chosen.logprob] if chosen.logprob else [],
            finish=finish,
            cached_tokens=cached,
        )

    def _branch(self, child: Continuation) -> None:
        """A sibling gets the prompt's blocks, shared until one of them writes."""
        family = self._requests[child.add.id]
        parent = family[0]
        family[child.index] = child
        self._sequences[child.id] = child
        child.hashes, child.digest = parent.hashes, parent.digest
        self._batcher.fork(parent.id, child.id, child.add.sampling.max_tokens)

    def _finish(self, sequence: Continuation, token: int) -> str | None:
        rules = sequence.add.sampling
        enough = sequence.generated >= rules.min_tokens
        ends = token in self._architecture.eos_ids and not rules.ignore_eos
        if enough and (ends or token in rules.stop_token_ids):
            return "stop"
        if sequence.state.complete:
            return "stop"
        if sequence.generated >= rules.max_tokens:
            return "length"
        return None

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
        return Continuation(add, index, list(add.prompt), state, digest=b"prefix" + add.salt)

    def _chain(self, sequence: Continuation) -> list[bytes]:
        """The hashes of blocks that are full now and were not told yet.

        Each covers all before it. The hash is a cryptographic one, since a collision would show
        one client's cache to another.
        """
        if not self._config.prefix_caching:
            return []
        size = self._config.block_size
        chain = []
        while (sequence.hashes + 1) * size <= len(sequence.tokens):
            start = sequence.hashes * size
            block = array("I", sequence.tokens[start : start + size]).tobytes()
            sequence.digest = hashlib.blake2b(sequence.digest + block, digest_size=16).digest()
            sequence.hashes += 1
            chain.append(sequence.digest)
        return chain

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
        self._count.steps += bool(step.chunks)
        self._count.preemptions += len(step.preempted)
        for admitted in step.admitted:
            sequence = self._sequences[admitted.id]
            self._count.prefix_queries += len(sequence.tokens)
            self._count.prefix_hits += admitted.cached_tokens
            sequence.cached_tokens = min(admitted.cached_tokens, len(sequence.add.prompt))

    def _stats(self) -> Stats:
        return Stats(
            running=self._batcher.running,
            waiting=self._batcher.waiting,
            kv_usage=self._book.usage,
            **asdict(self._count),
        )

    def _longest(self, config: EngineConfig) -> int:
        room = self._arena.blocks * config.block_size
        longest = min(self._architecture.context, room)
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
        began = time.monotonic()
        self.add(Add("warm-up", [0] * min(32, self._max_model_len - 2), Sampling(max_tokens=2)))
        while self.busy:
            self.step()
        self._count = _Counters()
        self._stages["warm-up"] = time.monotonic() - began


def _arena(files: ModelFiles, config: EngineConfig) -> Arena:
    """The cache that the settings ask for."""
    try:
        return Arena.of_size(
            files.architecture, config.dtype, config.kv_cache_bytes, config.block_size
        )
    except ValueError as error:
        raise ModelError(str(error), where="kv_cache", remedy="a larger kv_cache") from error
    except MemoryError as error:
        raise ModelError(
            f"{config.kv_cache_bytes / 1e9:,.0f} GB are more than this machine can give",
            where="kv_cache",
            remedy="a smaller kv_cache",
        ) from error
