"""The fake engine without sockets: whatever is asked and dropped, the books balance."""

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.fake.engine import FakeEngine, Generation
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.openai import ApiError
from ridgeline.serving.usage_log import UsageLog

SETUP = Setup(time_scale=0, machine=Machine(Plain(), 512), max_seqs=4, max_batched_tokens=32)

#: prompt tokens, n, output tokens, tokens after which the client leaves (None: it stays)
REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 90), st.integers(1, 3), st.integers(1, 60), st.none() | st.integers(0, 40)
    ),
    max_size=12,
)


def generation(name: str, prompt: list[int], n: int, most: int) -> Generation:
    return Generation(name, [prompt], n=n, most=most, ends="length", seed=0)


async def read(engine: FakeEngine, one: Generation, leaves_after: int | None) -> int:
    """How many tokens a client got before the end, or before it left."""
    got, left = 0, len(one.choices)
    try:
        while left and (leaves_after is None or got < leaves_after):
            arrived = await one.arrivals()
            got += len(arrived)
            left -= sum(finish is not None for _, _, finish in arrived)
    finally:
        engine.close(one)
    return got


@given(REQUESTS)
@settings(max_examples=40, deadline=None)
def test_all_that_is_generated_is_counted_and_nothing_stays_behind(requests):
    async def main() -> None:
        log = UsageLog(None)
        engine = FakeEngine(SETUP, log)
        running = asyncio.create_task(engine.run())
        reads = []
        for number, (prompt, n, most, leaves_after) in enumerate(requests):
            one = generation(f"r{number}", [number % 3] * prompt, n, most)
            engine.ask(one, f"r{number}")
            reads.append(read(engine, one, leaves_after))
        got = await asyncio.gather(*reads)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        used = [log.find(f"r{number}") for number in range(len(requests))]
        for (_, n, most, leaves_after), tokens, usage in zip(requests, got, used, strict=True):
            assert usage.finished
            assert tokens <= usage.completion_tokens <= n * most
            assert leaves_after is not None or tokens == usage.completion_tokens == n * most
        assert sum(one.completion_tokens for one in used) == engine.counts["generation_tokens"]
        assert (engine.running, engine.waiting, engine.book.used) == (0, 0, 0)
        engine.book.check()

    asyncio.run(main())


async def test_whoever_waits_is_told_when_the_replica_goes():
    engine = FakeEngine(SETUP, UsageLog(None))
    one = generation("r", [1], 1, 9)
    engine.ask(one, "r")
    engine.fail_all(ApiError(503, "gone"))
    with suppress(ApiError):
        await one.arrivals()
        raise AssertionError("it has to be told")
    assert engine.waiting == 0


async def test_a_resumed_answer_that_says_nothing_more_keeps_its_count():
    log = UsageLog(None)
    engine = FakeEngine(SETUP, log)
    one = Generation("r", [[5] * 9], n=1, most=30, ends="length", seed=3, resumed=(1, 2, 3))
    engine.ask(one, "req-1~2")
    engine.close(one)  # its client left
    logged = log.find("req-1~2")
    assert logged is not None
    assert (logged.completion_tokens, logged.finished) == (3, True)


async def test_a_resumed_answer_goes_on_at_its_place():
    async def ids(resumed: tuple[int, ...]) -> list[int]:
        engine = FakeEngine(SETUP, UsageLog(None))
        running = asyncio.create_task(engine.run())
        one = Generation("r", [[5] * 40], n=1, most=30, ends="length", seed=3, resumed=resumed)
        engine.ask(one, "r")
        said = []
        while len(said) < 30 - len(resumed):
            said += [token for _, token, _ in await one.arrivals()]
        running.cancel()
        assert one.completion_tokens == 30
        return said

    whole = await ids(())
    assert [*whole[:17], *await ids(tuple(whole[:17]))] == whole
