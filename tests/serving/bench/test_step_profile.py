"""A profile finds the step times of an engine that takes just these: in virtual time, exactly."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from ridgeline.errors import BenchError, SpecError
from ridgeline.physics.step_table import StepTable
from ridgeline.serving.bench.prompts import CANDIDATES, Prompts, Vocabulary
from ridgeline.serving.bench.sample import Answer
from ridgeline.serving.bench.step_profile import POINTS, Extent, Profiler, profile, rounds
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.plan.step_fit import Fitted, fit_table
from ridgeline.serving.policy.batch import Batcher, Limits
from ridgeline.serving.policy.blocks import BlockBook

WORDS = Vocabulary(CANDIDATES, 1, exact=True)
EXTENT = Extent(16, 600, 256)
TRUE = StepTable(
    (1, 2, 4, 8, 16, 32, 64, 128, 256),
    (0.007, 0.0075, 0.0085, 0.010, 0.013, 0.017, 0.025, 0.044, 0.085),
    2e-4,
    1.2e-6,
    3e-8,
)
THERE_S, BACK_S, PASSED_S = 0.003, 0.0004, 0.0012


class StepByStep:
    """A server whose engine is the batch policy, and whose steps take what `TRUE` says."""

    url = "http://server"

    def __init__(self, most_seqs: int = 64) -> None:
        book = BlockBook(4000, 16)
        self.batcher = Batcher(Limits(most_seqs, EXTENT.step_tokens), book)
        self.machine = Machine(TRUE, 64_000)
        self.came = asyncio.Event()
        self.times_s: dict[str, list[float]] = {}
        self.ends: dict[str, asyncio.Future[None]] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            step = self.batcher.decide()
            if not step.chunks:
                self.came.clear()
                await self.came.wait()
                continue
            await asyncio.sleep(self.machine.step_s(step))
            self.batcher.commit(step)
            for chunk in step.chunks:
                if chunk.samples:
                    self.times_s[chunk.id].append(loop.time() + BACK_S)
                    if not self.batcher.left(chunk.id):
                        self.batcher.finish(chunk.id)
                        self.ends[chunk.id].set_result(None)

    async def send(self, prompt: str, output_tokens: int, origin_s: float) -> Answer:
        loop = asyncio.get_running_loop()
        sent_s, name, words = loop.time(), f"r{len(self.ends)}", prompt.split()
        tokens, cached = len(words), 0
        self.times_s[name], self.ends[name] = [], loop.create_future()
        await asyncio.sleep(THERE_S)
        whole = range(16, tokens + 1, 16)
        hashes = [" ".join(words[:end]).encode() for end in whole]
        cached = 16 * self.batcher.book.cached(hashes[: (tokens - 1) // 16])
        self.batcher.add(name, tokens, output_tokens, hashes)
        self.came.set()
        await self.ends[name]
        await asyncio.sleep(BACK_S)
        return Answer(
            sent_s, loop.time(), tuple(self.times_s[name]), tokens, output_tokens, cached, "", ""
        )


def profiled(virtually, seconds: float, **server) -> list:
    async def work() -> list:
        engine = StepByStep(**server)
        running = asyncio.create_task(engine.run())
        now = asyncio.get_running_loop().time
        profiler = Profiler([engine], Prompts(WORDS, 1), EXTENT, now=now)
        try:
            await profiler.run(now() + seconds)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        return profiler.seen

    return virtually(work())


@pytest.fixture
def fitted(virtually) -> Fitted:
    return fit_table(profiled(virtually, 40.0), POINTS)


def test_every_step_is_found_as_it_is(fitted):
    table = fitted.table
    for decodes in (1, 3, 8, 16):
        for context in (20, 500):
            asked = decodes, float(decodes * context)
            assert table.step_s(*asked) == pytest.approx(TRUE.step_s(*asked), rel=0.01)
    for tokens in (16, 100, 256):
        alone = None, None, tokens, tokens / 2
        assert table.step_s(*alone) == pytest.approx(TRUE.step_s(*alone), rel=0.02)
        warm = None, None, tokens, 400.0
        assert table.step_s(*warm) == pytest.approx(TRUE.step_s(*warm), rel=0.03)
        mixed = 8, 8 * 60.0, tokens - 8, tokens / 2
        assert table.step_s(*mixed) == pytest.approx(TRUE.step_s(*mixed), rel=0.02)


def test_the_ways_are_found_together(fitted):
    assert fitted.travel_s.value == pytest.approx(THERE_S + BACK_S, rel=0.1)
    assert max(fitted.errors) < 0.02


def test_it_ends_in_time_and_sees_every_kind(virtually):
    seen = profiled(virtually, 40.0)
    assert {one.what for one in seen} == {one.what for one in rounds(EXTENT)}


def test_batches_that_the_engine_does_not_take_at_once_are_left_out(virtually):
    seen = profiled(virtually, 40.0, most_seqs=8)
    assert max(step.decodes for one in seen for step in one.steps) == 8


class Alternately:
    """A gateway before two engines, which passes a request on in a while."""

    url = "http://gateway"

    def __init__(self, *engines: StepByStep) -> None:
        self.engines = engines
        self.asked = 0

    async def send(self, prompt: str, output_tokens: int, origin_s: float) -> Answer:
        sent_s = asyncio.get_running_loop().time()
        engine = self.engines[self.asked % len(self.engines)]
        self.asked += 1
        await asyncio.sleep(PASSED_S)
        return replace(await engine.send(prompt, output_tokens, origin_s), sent_s=sent_s)


def test_through_a_gateway_two_engines_are_found_as_one_and_what_it_adds(virtually):
    async def work() -> tuple[list, float]:
        engines = StepByStep(), StepByStep()
        running = [asyncio.create_task(engine.run()) for engine in engines]
        now, front = asyncio.get_running_loop().time, Alternately(*engines)
        profiler = Profiler(engines, Prompts(WORDS, 1), EXTENT, front, now)
        passed_s = await profiler.passed_s()
        await profiler.run(now() + 40.0)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return profiler.seen, passed_s

    seen, passed_s = virtually(work())
    assert passed_s == pytest.approx(PASSED_S)
    table = fit_table(seen, POINTS).table
    for asked in ((1, 50.0), (8, 8 * 300.0), (16, 16 * 100.0)):
        assert table.step_s(*asked) == pytest.approx(TRUE.step_s(*asked), rel=0.02)


def test_a_time_that_is_too_short_for_every_kind_is_said(virtually):
    with pytest.raises(BenchError, match=r"the time was over before [0-9]+ of"):
        profiled(virtually, 2.0)


async def test_an_engine_that_fails_is_no_engine_to_believe(fake):
    fake.fail_with = 500
    with pytest.raises(BenchError, match="failed: http 500"):
        await profile([fake.url], EXTENT, 1.0, seed=1)


async def test_a_context_that_is_too_long_is_said_before(fake):
    fake.context = 512
    with pytest.raises(SpecError, match="holds 512 tokens"):
        await profile([fake.url], EXTENT, 1.0, seed=1)
