"""An answer in the making: the engine's outputs become deltas of text, times are noted.

`endpoints` opens one for each HTTP request; `stream` and `whole` read its deltas. Leaving it, for
whatever reason, aborts in the engine what still runs: a client that has gone costs nothing.
"""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import msgspec

from ridgeline.serving.engine.continuation import Continuation, Delta
from ridgeline.serving.engine.link import EngineLink, Generation
from ridgeline.serving.engine.messages import Output
from ridgeline.serving.engine.metrics import Watch
from ridgeline.serving.openai import ApiError


class CachedTokens(msgspec.Struct, frozen=True):
    """How many prompt tokens came out of the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's count of tokens. A prompt counts once, whatever its n."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Answer:
    """One HTTP request's choices, from its question to the engine until all are complete.

    An async context manager; `deltas` may be read once, inside it.
    """

    def __init__(
        self,
        link: EngineLink,
        generation: Generation,
        continuations: list[Continuation],
        watch: Watch,
    ) -> None:
        assert generation.choices == len(continuations), "one continuation a choice"
        self._link = link
        self._generation = generation
        self._continuations = continuations
        self._watch = watch
        self._running = set(range(len(continuations)))
        self._cached_tokens = 0

    async def __aenter__(self) -> Self:
        """Ask the engine. Raises ApiError when it is gone."""
        self._link.ask(self._generation)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Abort what still runs; the count of a complete answer is what its usage says."""
        entry = self._generation.entry
        if entry is not None and not self._running:
            entry.completion_tokens = self.usage.completion_tokens
        self._link.close(self._generation)
        reason = "error" if isinstance(error, ApiError) else "abort"
        for choice in self._running:
            self._watch.finished(choice, reason)

    async def deltas(self) -> AsyncIterator[list[Delta]]:
        """What each step added, until every choice is complete.

        Raises ApiError when the engine fails at the request or is lost.
        """
        while self._running:
            arrived = await self._generation.arrivals()
            self._watch.arrived(arrived)
            yield [
                self._delta(choice, output) for choice, output in arrived if choice in self._running
            ]
        self._watch.ended()

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        prompt = sum(len(add.prompt) for add in self._generation.adds)
        completion = sum(continuation.tokens for continuation in self._continuations)
        cached = CachedTokens(self._cached_tokens)
        return Usage(prompt, completion, prompt + completion, cached)

    def _delta(self, choice: int, output: Output) -> Delta:
        if output.finish == "error":
            raise ApiError(500, f"The engine could not make this answer: {output.error}.")
        self._cached_tokens += output.cached_tokens
        delta = self._continuations[choice].feed(output)
        if delta.finish is not None:
            self._running.discard(choice)
            self._watch.finished(choice, delta.finish)
            if delta.stopped:
                self._link.end_choice(self._generation, choice)
        return delta
