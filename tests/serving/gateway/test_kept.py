"""Answers that are kept: one thread at a time, and no more of it than was agreed."""

import asyncio
import threading

import pytest

from ridgeline.serving.gateway.kept import KEEP_S, KEEP_TIMES, Kept


class Clock:
    """A manual clock, and work that takes `took_s` on it."""

    def __init__(self, took_s: float = 0.0) -> None:
        self.now_s, self.took_s, self.asked = 100.0, took_s, 0

    def work(self) -> int:
        self.asked += 1
        self.now_s += self.took_s
        return self.asked


async def test_an_answer_is_kept_for_a_second() -> None:
    clock = Clock()
    kept = Kept(clock.work, lambda: clock.now_s)
    assert [await kept.get(), await kept.get()] == [1, 1]
    clock.now_s += KEEP_S - 0.01
    assert await kept.get() == 1
    clock.now_s += 0.01
    assert await kept.get() == 2


async def test_an_answer_that_took_long_is_kept_for_longer() -> None:
    clock = Clock(took_s=3.0)
    kept = Kept(clock.work, lambda: clock.now_s)
    await kept.get()
    clock.now_s += 3.0 * KEEP_TIMES - 0.01
    assert await kept.get() == 1
    clock.now_s += 0.01
    assert await kept.get() == 2


async def test_many_who_ask_at_once_share_one_answer_and_who_leaves_stops_nobody() -> None:
    go, asked = threading.Event(), []

    def work() -> str:
        asked.append(1)
        go.wait(10)
        return "there"

    kept = Kept(work)
    waiting = [asyncio.create_task(kept.get()) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    go.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == ["there"] * 49
    assert len(asked) == 1


async def test_an_error_is_everybodys_who_waits_and_is_not_kept() -> None:
    outcomes = iter([ValueError("once"), None])

    def work() -> str:
        if error := next(outcomes):
            raise error
        return "there"

    kept = Kept(work)
    with pytest.raises(ValueError, match="once"):
        await kept.get()
    assert await kept.get() == "there"


async def test_close_waits_for_a_thread_at_work() -> None:
    go, done = threading.Event(), []

    def work() -> str:
        go.wait(10)
        done.append(1)
        return ""

    kept = Kept(work)
    waiting = asyncio.create_task(kept.get())
    await asyncio.sleep(0)
    waiting.cancel()
    closing = asyncio.create_task(kept.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go.set()
    await closing
    assert done
