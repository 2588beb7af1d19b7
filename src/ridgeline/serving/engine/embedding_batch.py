"""Texts of many requests, computed together: oldest first, as many as a step's tokens allow.

The computation runs in a thread of its own, one batch after the other, so that the event loop
stays free; what its client no longer wants is dropped before it is computed. Called by
`embedding_front`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ridgeline.serving.openai import ApiError

_LOG = logging.getLogger(__name__)

Compute = Callable[[Sequence[Sequence[int]]], list[bytes]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One text, and who waits for its vector."""

    ids: list[int]
    vector: "asyncio.Future[bytes]"


def how_many(lengths: Sequence[int], most_tokens: int) -> int:
    """How many of the first texts make one batch: padded, they have at most `most_tokens`.

    One text always goes, however long it is.
    """
    longest = 0
    for count, length in enumerate(lengths):
        longest = max(longest, length)
        if longest * (count + 1) > most_tokens:
            return max(1, count)
    return len(lengths)


class Batcher:
    """Computes what is asked, batch by batch; `run` is the loop, cancelled at the end."""

    def __init__(self, compute: Compute, most_tokens: int) -> None:
        self._compute = compute
        self._most_tokens = most_tokens
        self._queue: deque[Waiting] = deque()
        self._asked = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._batch: list[Waiting] = []

    @property
    def running(self) -> int:
        """Texts being computed."""
        return len(self._batch)

    @property
    def waiting(self) -> int:
        """Texts that are not yet being computed and whose clients still wait."""
        return sum(not one.vector.done() for one in self._queue)

    async def embed(self, texts: Sequence[list[int]]) -> list[bytes]:
        """The texts' vectors, in their order; cancelled, those that still wait are dropped.

        The shortest go first: texts of like length waste little on padding.
        """
        loop = asyncio.get_running_loop()
        waiting = [Waiting(ids, loop.create_future()) for ids in texts]
        self._queue.extend(sorted(waiting, key=lambda one: len(one.ids)))
        self._asked.set()
        return list(await asyncio.gather(*(one.vector for one in waiting)))

    async def run(self) -> None:
        """Compute for as long as this is not cancelled."""
        try:
            while True:
                self._batch = self._next()
                if self._batch:
                    await self._step(self._batch)
                else:
                    self._asked.clear()
                    await self._asked.wait()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def fail_all(self, error: ApiError) -> None:
        """Whoever waits, or is being computed, is told that nothing will come."""
        _fail([*self._batch, *self._queue], error)

    async def _step(self, batch: Sequence[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        ids = [one.ids for one in batch]
        try:
            vectors = await loop.run_in_executor(self._thread, self._compute, ids)
        except Exception:  # whatever the model raises, its clients are told, and others go on
            _LOG.exception("a batch of %d texts failed", len(batch))
            _fail(batch, ApiError(500, "The model failed at this request.", code="engine_error"))
            return
        for one, vector in zip(batch, vectors, strict=True):
            if not one.vector.done():
                one.vector.set_result(vector)

    def _next(self) -> list[Waiting]:
        wanted = [one for one in self._queue if not one.vector.done()]
        count = how_many([len(one.ids) for one in wanted], self._most_tokens)
        self._queue = deque(wanted[count:])
        return wanted[:count]


def _fail(waiting: Sequence[Waiting], error: ApiError) -> None:
    for one in waiting:
        if not one.vector.done():
            one.vector.set_exception(error)
