"""Batches: oldest first, within the tokens of a step, never what nobody waits for."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.engine.embedding_batch import Batcher, how_many
from ridgeline.serving.openai import ApiError


@given(st.lists(st.integers(1, 300), min_size=1), st.integers(1, 600))
def test_a_batch_fits_or_is_one_text(lengths: list[int], most: int) -> None:
    count = how_many(lengths, most)
    assert 1 <= count <= len(lengths)
    assert count == 1 or max(lengths[:count]) * count <= most
    if count < len(lengths):
        assert max(lengths[: count + 1]) * (count + 1) > most


class Slow:
    """Computes when it is let; `batches` are what it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[list[int]]] = []
        self.began = threading.Event()
        self.go = threading.Event()
        self.error: Exception | None = None

    def __call__(self, texts: Sequence[Sequence[int]]) -> list[bytes]:
        self.batches.append([list(ids) for ids in texts])
        self.began.set()
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        return [bytes(ids) for ids in texts]


@asynccontextmanager
async def running(slow: Slow, most_tokens: int) -> AsyncIterator[Batcher]:
    batcher = Batcher(slow, most_tokens)
    task = asyncio.create_task(batcher.run())
    try:
        yield batcher
    finally:
        slow.go.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_vectors_come_back_in_the_order_of_their_texts() -> None:
    slow = Slow()
    slow.go.set()
    async with running(slow, 4) as batcher:
        assert await batcher.embed([[1, 1, 1], [2], [3, 3]]) == [b"\1\1\1", b"\2", b"\3\3"]
    assert slow.batches == [[[2], [3, 3]], [[1, 1, 1]]]


async def test_what_nobody_waits_for_is_not_computed() -> None:
    slow = Slow()
    async with running(slow, 1) as batcher:
        first = asyncio.create_task(batcher.embed([[1]]))
        await asyncio.to_thread(slow.began.wait, 10)
        second = asyncio.create_task(batcher.embed([[2]]))
        third = asyncio.create_task(batcher.embed([[3]]))
        await asyncio.sleep(0)
        assert (batcher.running, batcher.waiting) == (1, 2)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert batcher.waiting == 1
        slow.go.set()
        assert await first == [b"\1"]
        assert await third == [b"\3"]
    assert slow.batches == [[[1]], [[3]]]


async def test_a_failed_batch_fails_its_texts_and_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Slow()
    slow.error = RuntimeError("broken")
    slow.go.set()
    async with running(slow, 8) as batcher:
        with pytest.raises(ApiError, match="failed at this request"):
            await batcher.embed([[1], [2]])
        slow.error = None
        assert await batcher.embed([[3]]) == [b"\3"]
    assert "broken" in caplog.text


async def test_all_can_be_told_that_nothing_will_come() -> None:
    slow = Slow()
    async with running(slow, 1) as batcher:
        both = asyncio.create_task(batcher.embed([[1], [2]]))
        await asyncio.to_thread(slow.began.wait, 10)
        batcher.fail_all(ApiError(503, "gone"))
        with pytest.raises(ApiError, match="gone"):
            await both
