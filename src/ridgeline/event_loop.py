"""The event loop that every server and client of ours runs on."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end: on uvloop where it is installed (it halves the cost of a small write)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def on_signals(act: Callable[[], None], *numbers: signal.Signals) -> None:
    """Call `act` in the running loop at each of these signals, by default SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in numbers or (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: there Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, act)
