import asyncio
from dataclasses import replace
from itertools import islice

import pytest

from ridgeline.errors import BenchError, SpecError
from ridgeline.serving.bench.goodput import Slo
from ridgeline.serving.bench.load import Plan, Watcher, opened, requests_of
from ridgeline.serving.bench.prompts import CANDIDATES
from ridgeline.serving.bench.report import Report
from ridgeline.serving.bench.server import Served
from ridgeline.workload import Arrivals, Request, Sizes, Trace

QUIET = Watcher(lambda plan, text: None, lambda sample: None)
PLAN = Plan("http://server", seed=1, rate_per_s=2.0, requests=20, warmup=0)
TRACE = Trace("t.csv", (Request(0.0, 50, 5), Request(3.0, 60, 6), Request(4.0, 70, 7)), 0, True)


@pytest.fixture
def ran(queue_bench, virtually):
    """Runs a plan against a queue in virtual time."""

    def run(plan: Plan, **options) -> Report:
        async def work() -> Report:
            return await queue_bench(**options).run(plan)

        return virtually(work())

    return run


def first(plan: Plan, count: int) -> list[Request]:
    return list(islice(requests_of(plan), count))


def test_a_plan_ends_after_its_requests_or_its_time():
    assert len(first(PLAN, 100)) == 20
    even = replace(PLAN, arrivals=Arrivals("even", 0.0), requests=None, duration_s=5.0)
    assert [r.at_s for r in first(even, 100)] == [0.5 * place for place in range(1, 11)]


def test_a_trace_alone_is_replayed_and_beside_a_load_gives_sizes():
    replay = replace(PLAN, rate_per_s=None, trace=TRACE, requests=None)
    assert tuple(first(replay, 9)) == TRACE.requests
    paced = first(replace(replay, rate_per_s=10.0), 9)
    assert [r.prompt_tokens for r in paced] == [50, 60, 70]
    assert [r.at_s for r in paced] != [r.at_s for r in TRACE.requests]


def test_a_level_is_the_same_plan_at_another_load():
    assert PLAN.at(5.5).rate_per_s == 5.5
    assert replace(PLAN, rate_per_s=None, workers=2).at(6.0).workers == 6


def test_the_same_plan_sends_the_same_prompts(virtually, queue_bench):
    async def prompts(seed: int) -> list[str]:
        bench = queue_bench()
        await bench.run(replace(PLAN, seed=seed))
        return bench.server.prompts

    once, again, other = (virtually(prompts(seed)) for seed in (1, 1, 2))
    assert once == again != other
    assert len(set(once)) == 20


def test_warm_up_prompts_are_not_those_of_the_run_and_are_not_measured(virtually, queue_bench):
    async def warmed() -> tuple[list[str], Report]:
        bench = queue_bench()
        await bench.warm(replace(PLAN, warmup=3))
        return bench.server.prompts[:3], await bench.run(PLAN)

    warm, report = virtually(warmed())
    assert len(set(warm)) == 3
    assert report.completed == 20


def test_a_run_measures_the_model_of_the_server_exactly(ran):
    """Four slots of 1 s and 2 even requests/s: no queue, so every measure is the model's own."""
    plan = replace(PLAN, arrivals=Arrivals("even", 0.0), slo=Slo(0.5, 0.05))
    report = ran(plan)
    assert report.ttft.max == pytest.approx(0.02, abs=1e-6)
    assert report.tpot.p50 == pytest.approx(0.98 / 127, abs=1e-6)
    assert report.e2e.p50 == pytest.approx(1.0, abs=1e-6)
    assert report.duration_s == pytest.approx(20 / 2 + 1.0)
    assert report.output_tokens_per_s == pytest.approx(20 * 128 / 11.0)
    assert report.goodput.share == 1.0


def test_an_overloaded_server_is_seen_from_the_schedule(ran):
    """One slot of 1 s and 2 even requests/s: the k-th request waits k / 2 seconds."""
    plan = replace(PLAN, arrivals=Arrivals("even", 0.0), slo=Slo(ttft_s=2.6))
    report = ran(plan, slots=1)
    assert report.scheduled_ttft.max == pytest.approx(19 / 2 + 0.02, abs=1e-6)
    assert report.goodput.good == 6


def test_what_the_context_has_no_room_for_is_left_out_and_told(ran):
    plan = replace(PLAN, rate_per_s=None, trace=TRACE, requests=None)
    report = ran(plan, context=70)
    assert report.completed == 2
    assert "1 requests over 70 tokens were left out" in report.notes


def test_prompts_below_the_least_are_lengthened_and_told(ran):
    plan = replace(PLAN, prompt=Sizes("uniform", 1, 9), shared_tokens=20)
    report = ran(plan)
    assert report.prompt_tokens == 20 * 22
    assert "20 prompts were lengthened to the least possible, 22" in report.notes


def test_a_run_of_which_nothing_fits_is_refused(ran):
    with pytest.raises(SpecError, match="over the model's 70 tokens"):
        ran(PLAN, context=70)


def test_a_prompt_that_cannot_be_so_short_is_refused(ran):
    with pytest.raises(SpecError, match="a prompt of 8 tokens is not possible"):
        ran(replace(PLAN, prompt=Sizes("fixed", 8), shared_tokens=10))


def test_a_client_that_was_the_bottleneck_reports_nothing(virtually, queue_bench):
    async def held_up() -> Report:
        loop = asyncio.get_running_loop()
        for moment_s in (1.0, 2.0, 3.0):
            loop.call_later(moment_s, lambda: setattr(loop, "now_s", loop.now_s + 0.7))
        return await queue_bench(slots=100).run(PLAN)

    with pytest.raises(BenchError, match="the client was the bottleneck at 2 requests/s: ") as no:
        virtually(held_up())
    assert "sending was" in no.value.problem
    assert "lower load" in no.value.remedy


async def test_opening_learns_the_model_its_context_and_its_tokenizer(fake):
    fake.context, fake.two_token_words = 4096, frozenset(CANDIDATES[:3])
    plan = Plan(fake.url, seed=1, workers=1, requests=1)
    async with opened(plan, QUIET, asyncio.Event()) as bench:
        assert bench.served == Served("fake-1", 4096)
        assert bench.vocabulary.exact
        assert not set(bench.vocabulary.words) & fake.two_token_words


async def test_the_servers_count_of_a_prompt_is_what_was_asked_for(fake, believed):
    plan = Plan(fake.url, seed=1, workers=2, requests=6, output=Sizes("fixed", 3))
    async with opened(plan, QUIET, asyncio.Event()) as bench:
        report = await bench.run(plan)
    assert [s.answer.prompt_tokens for s in report.samples] == [128] * 6


async def test_without_a_tokenizer_the_report_says_that_sizes_are_approximate(fake, believed):
    fake.tokenizer = False
    plan = Plan(fake.url, seed=1, workers=1, requests=2, output=Sizes("fixed", 3))
    async with opened(plan, QUIET, asyncio.Event()) as bench:
        report = await bench.run(plan)
    assert any("approximate" in note for note in report.notes)


async def test_a_server_that_fails_every_warm_up_is_not_measured(fake):
    fake.fail_with = 500
    plan = Plan(fake.url, seed=1, workers=1, requests=2)
    async with opened(plan, QUIET, asyncio.Event()) as bench:
        with pytest.raises(BenchError, match="every warm-up request failed: http 500 as told"):
            await bench.warm(plan)
