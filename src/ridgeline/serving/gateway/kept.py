"""The answer to a slow question: worked out in a thread, once at a time, and kept for a while.

However many look, a question is asked at most once a second, and takes at most a twentieth of a
core: an answer that took long is kept for longer. Called by `console_data`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

#: The shortest time that an answer is kept, and how often its own time it is at least.
KEEP_S = 1.0
KEEP_TIMES = 20.0

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """One question. `work` is called in a thread; what it raises, everybody who waits gets."""

    def __init__(
        self, work: Callable[[], Answer], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._now_s = now_s
        self._answer: Answer | None = None
        self._until_s = 0.0
        self._working: asyncio.Task[Answer] | None = None

    async def get(self) -> Answer:
        """The answer that is kept, or a new one. A caller that leaves stops nobody else's."""
        if self._answer is not None and self._now_s() < self._until_s:
            return self._answer
        if self._working is None:
            self._working = asyncio.create_task(self._ask())
            self._working.add_done_callback(_seen)
        return await asyncio.shield(self._working)

    async def close(self) -> None:
        """Wait for a thread that is still at work."""
        if self._working is not None:
            await asyncio.wait([self._working])

    async def _ask(self) -> Answer:
        began_s = self._now_s()
        try:
            answer = await asyncio.to_thread(self._work)
        finally:
            self._working = None
        self._answer = answer
        now_s = self._now_s()
        self._until_s = now_s + max(KEEP_S, KEEP_TIMES * (now_s - began_s))
        return answer


def _seen(task: "asyncio.Task[Answer]") -> None:
    """Its error is not lost, even where nobody waits for it any more."""
    if not task.cancelled():
        task.exception()
