"""One thread for what may take long: tokenizing a large prompt, compiling a schema.

Used by `endpoints` and `status`. The event loop, which feeds every open stream, must not wait
for it; and as it is one thread, hostile requests take at most one core from the engine.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: A body up to this size is read faster than a thread is asked to.
_SMALL_BYTES = 4096
#: Signs of a grammar, which may take long to compile; a false alarm costs a thread's turn.
_GRAMMAR_SIGNS = (b"response_format", b"tool_choice")


class Aside:
    """Runs functions of a request's body, in the thread where that may take long."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aside")

    async def run(self, function: Callable[[bytes], T], body: bytes) -> T:
        """What `function` makes of the body, or raises."""
        if len(body) <= _SMALL_BYTES and not any(sign in body for sign in _GRAMMAR_SIGNS):
            return function(body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, body)

    def close(self) -> None:
        """No more requests will come; what still runs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
