import asyncio
from dataclasses import replace

import pytest

from ridgeline.errors import BenchError
from ridgeline.serving.bench.goodput import Slo
from ridgeline.serving.bench.load import Plan
from ridgeline.serving.bench.sweep import Sweep, sweep

PLAN = Plan("http://server", seed=1, rate_per_s=2.0, requests=20, warmup=0)


def ignored(report, verdict) -> None:
    """Nobody is told of the levels."""


@pytest.fixture
def swept(queue_bench, virtually):
    """Sweeps over a queue in virtual time."""

    def run(plan: Plan, **options) -> Sweep:
        async def work() -> Sweep:
            return await sweep(queue_bench(**options), plan, 0.9, ignored)

        return virtually(work())

    return run


def test_a_sweep_finds_the_rate_that_a_queue_bears(swept):
    """Eight slots of 1 s: 8 requests/s is all there is, and below it goodput holds."""
    plan = replace(PLAN, requests=None, duration_s=60.0, slo=Slo(ttft_s=0.5))
    found = swept(plan, slots=8)
    assert 5.0 <= found.best <= 8.0
    assert found.at_best().goodput.share >= 0.9
    assert "goodput" in found.reason
    assert [level.setting.load for level in found.levels] == sorted(
        level.setting.load for level in found.levels
    )


def test_a_sweep_without_objectives_ends_where_throughput_saturates(swept):
    plan = replace(PLAN, requests=None, duration_s=60.0)
    found = swept(plan, slots=8)
    assert 6.5 <= found.best <= 9.6  # capacity 8; a backlog of a fifth is let pass
    assert "saturated" in found.reason


def test_a_sweep_over_workers_finds_the_slots(swept):
    plan = replace(PLAN, rate_per_s=None, workers=1, requests=64, slo=Slo(ttft_s=0.5))
    found = swept(plan, slots=8)
    assert found.best == 8
    assert found.unit == "workers"


def test_no_level_of_a_sweep_repeats_a_prompt(virtually, queue_bench):
    async def prompts() -> list[str]:
        bench = queue_bench(slots=8)
        await sweep(bench, replace(PLAN, requests=30, slo=Slo(ttft_s=0.5)), 0.9, ignored)
        return bench.server.prompts

    seen = virtually(prompts())
    assert len(set(seen)) == len(seen)


def test_a_client_that_gives_in_during_a_sweep_says_what_still_held(virtually, queue_bench):
    async def held_up() -> Sweep:
        loop = asyncio.get_running_loop()
        for moment_s in range(40, 60):
            loop.call_later(moment_s, lambda: setattr(loop, "now_s", loop.now_s + 0.5))
        plan = replace(PLAN, requests=None, duration_s=30.0)
        return await sweep(queue_bench(slots=1000), plan, 0.9, ignored)

    with pytest.raises(
        BenchError, match=r"bottleneck at 4 requests/s: .*; 2 requests/s still held"
    ):
        virtually(held_up())


def test_an_interrupted_sweep_keeps_its_whole_levels(virtually, queue_bench):
    async def stopped() -> Sweep:
        bench = queue_bench(slots=1000)
        asyncio.get_running_loop().call_later(50.0, bench.stop.set)
        return await sweep(bench, replace(PLAN, requests=None, duration_s=30.0), 0.9, ignored)

    found = virtually(stopped())
    assert found.interrupted
    assert [level.setting.load for level in found.levels] == [2.0]


def test_json_says_the_answer_its_levels_and_findings(swept):
    plan = replace(PLAN, requests=None, duration_s=20.0, slo=Slo(ttft_s=0.5))
    found = swept(plan, slots=8)
    said = found.to_dict()
    assert said["best"] == found.best
    assert said["unit"] == "requests/s"
    assert len(said["levels"]) == len(found.levels)
    assert [text["text"] for text in said["findings"]] == [str(one) for one in found.findings]
