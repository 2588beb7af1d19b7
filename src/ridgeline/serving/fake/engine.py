"""The fake engine: continuous batching in real time, by the scheduler of the real engine.

`policy.batch` decides what runs, as in `serving.engine.loop`; a step then takes as long as the
step-time model says, instead of being computed. Steps follow one another by the clock of the model,
so that a late wake-up of this process does not add up. `answers` reads what a generation gets.

    waiting ─▶ decide ─▶ wait for the step's end ─▶ commit ─▶ write the usage log ─▶ deliver
                  ▲                                                                    │
                  └──────────────────────── while anything is there ◀──────────────────┘
"""

import asyncio
import hashlib
import time
from array import array
from collections import Counter

from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.fake.tokens import stream_key, token_at
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.batch import Batcher, Chunk, Limits, Step
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.usage_log import Entry, UsageLog


class Choice:
    """One sequence: a prompt and one way to go on, of `most` tokens; `said` of them are there.

    `hashed` counts the full blocks whose hash the policy knows, `digest` is the last of that chain.
    """

    __slots__ = (
        "counts_cached", "digest", "ends", "hashed", "id", "index", "key", "most", "of", "prompt",
        "said", "tokens",
    )  # fmt: skip

    def __init__(self, of: "Generation", index: int, prompt: list[int], key: int) -> None:
        self.of = of
        self.index = index
        self.id = f"{of.id}#{index}"
        self.prompt = prompt
        self.key = key
        self.said = 0
        self.most = of.most
        self.ends = of.ends
        self.tokens = list(prompt)
        self.hashed = 0
        self.digest = b"prefix" + of.salt
        #: A prompt counts once, whatever its n, and so does what the cache had of it.
        self.counts_cached = False

    def say(self) -> int:
        """The next token."""
        token = token_at(self.key, self.said)
        self.said += 1
        self.tokens.append(token)
        return token

    def chain(self, block_size: int) -> list[bytes]:
        """The hashes of blocks that are full now and were not told yet; each covers all before."""
        chain = []
        while (self.hashed + 1) * block_size <= len(self.tokens):
            start = self.hashed * block_size
            block = array("Q", self.tokens[start : start + block_size]).tobytes()
            self.digest = hashlib.blake2b(self.digest + block, digest_size=16).digest()
            self.hashed += 1
            chain.append(self.digest)
        return chain


class Generation:
    """One HTTP request's choices, and what has arrived of them: (choice, token, finish).

    `resumed` are output tokens that were said before, elsewhere.
    """

    def __init__(
        self,
        generation_id: str,
        prompts: list[list[int]],
        *,
        n: int,
        most: int,
        ends: str,
        seed: int,
        salt: bytes = b"",
        priority: int = 0,
        resumed: tuple[int, ...] = (),
    ) -> None:
        self.id = generation_id
        self.most = most
        self.ends = ends
        self.salt = salt
        self.priority = priority
        self.prompt_tokens = sum(map(len, prompts))
        self.cached_tokens = 0
        self.completion_tokens = len(resumed)
        self.choices = [
            Choice(self, number * n + index, prompt, stream_key(prompt, seed, index))
            for number, prompt in enumerate(prompts)
            for index in range(n)
        ]
        for first in self.choices[::n]:
            first.counts_cached = True
        if resumed:
            assert len(self.choices) == 1, "an answer of several choices is not resumed"
            self.choices[0].tokens += resumed
            self.choices[0].said = len(resumed)
        self.running = {choice.id for choice in self.choices}
        self.entry: Entry | None = None
        self.arrived_s = time.monotonic()
        self._arrived: list[tuple[int, int, str | None]] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: ApiError | None = None

    async def arrivals(self) -> list[tuple[int, int, str | None]]:
        """What came since the last call, at least one token. Raises ApiError where none comes."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        arrived, self._arrived = self._arrived, []
        return arrived

    def deliver(self, choice: Choice, token: int, finish: str | None) -> None:
        """One more token."""
        self._arrived.append((choice.index, token, finish))
        self._wake()

    def fail(self, error: ApiError) -> None:
        """Nothing more will come."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class FakeEngine:
    """All that runs on one fake replica. `run` is its life; use it from one event loop."""

    def __init__(self, setup: Setup, log: UsageLog) -> None:
        self._setup = setup
        self._log = log
        blocks = max(setup.machine.kv_tokens // setup.block_size, 1)
        self.book = BlockBook(blocks, setup.block_size, caching=setup.prefix_caching)
        limits = Limits(min(setup.max_seqs, setup.max_batched_tokens), setup.max_batched_tokens)
        self._batcher = Batcher(limits, self.book)
        self._choices: dict[str, Choice] = {}
        self._work = asyncio.Event()
        #: Totals by the names that vLLM's counters have.
        self.counts: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return self._batcher.running

    @property
    def waiting(self) -> int:
        """Sequences that wait for their turn."""
        return self._batcher.waiting

    @property
    def longest(self) -> int:
        """The most tokens that a sequence may have."""
        return min(self._setup.max_model_len, self.book.capacity_tokens)

    def ask(self, generation: Generation, request_id: str) -> None:
        """Take a request. Its choices were checked to fit `longest`."""
        generation.entry = self._log.begin(
            request_id, generation.prompt_tokens, generation.completion_tokens
        )
        for choice in generation.choices:
            self._batcher.add(
                choice.id,
                len(choice.tokens),
                choice.most - choice.said,
                self._chain(choice),
                generation.priority,
            )
            self._choices[choice.id] = choice
        self.counts["prompt_tokens"] += generation.prompt_tokens
        self._work.set()

    def close(self, generation: Generation) -> None:
        """Nobody reads it any longer: what still runs of it is forgotten, its use is final."""
        for choice_id in generation.running:
            if self._choices.pop(choice_id, None) is not None:
                self._batcher.finish(choice_id)
        generation.running = set()
        if generation.entry is not None and not generation.entry.finished:
            self._log.end(generation.entry)

    def fail_all(self, error: ApiError) -> None:
        """Every running request ends with this error."""
        for generation in {id(choice.of): choice.of for choice in self._choices.values()}.values():
            self.close(generation)
            generation.fail(error)

    async def run(self) -> None:
        """Step while there is work, until cancelled."""
        due_s = 0.0
        while True:
            if not self._choices:
                self._work.clear()
                await self._work.wait()
                due_s = time.monotonic()
            step = self._batcher.decide()
            self._note(step)
            due_s += self._setup.machine.step_s(step) * self._setup.time_scale
            late_s = time.monotonic() - due_s
            if late_s > 1.0:  # this process was stopped, or cannot keep up: time is not made up
                due_s += late_s
            await asyncio.sleep(max(-late_s, 0.0))
            self._commit(step)

    def _note(self, step: Step) -> None:
        self.counts["num_preemptions"] += len(step.preempted)
        for admitted in step.admitted:
            choice = self._choices[admitted.id]
            self.counts["prefix_cache_queries"] += len(choice.tokens)
            self.counts["prefix_cache_hits"] += admitted.cached_tokens
            if choice.counts_cached and choice.of.entry is not None:
                choice.counts_cached = False
                choice.of.cached_tokens += min(admitted.cached_tokens, len(choice.prompt))
                choice.of.entry.cached_tokens = choice.of.cached_tokens

    def _commit(self, step: Step) -> None:
        """The step is over: count and write down first, then let tokens go."""
        self._batcher.commit(step)
        said = [
            (choice, *self._said(choice))
            for chunk in step.chunks
            if (choice := self._who_samples(chunk)) is not None
        ]
        self.counts["generation_tokens"] += len(said)
        entries = {id(choice.of): choice.of.entry for choice, _, _ in said}
        self._log.write(entry for entry in entries.values() if entry is not None)
        for choice, token, finish in said:
            choice.of.deliver(choice, token, finish)

    def _who_samples(self, chunk: Chunk) -> Choice | None:
        """None also where the sequence was aborted while the step ran."""
        return self._choices.get(chunk.id) if chunk.samples else None

    def _said(self, choice: Choice) -> tuple[int, str | None]:
        generation = choice.of
        token = choice.say()
        generation.completion_tokens += 1
        assert generation.entry is not None, "asked"
        generation.entry.completion_tokens = generation.completion_tokens
        if choice.said < choice.most:
            if chain := self._chain(choice):
                self._batcher.extend(choice.id, chain)
            return token, None
        self._batcher.finish(choice.id)
        del self._choices[choice.id]
        generation.running.discard(choice.id)
        generation.entry.finished = not generation.running
        return token, choice.ends

    def _chain(self, choice: Choice) -> list[bytes]:
        return choice.chain(self._setup.block_size) if self._setup.prefix_caching else []
