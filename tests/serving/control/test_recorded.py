"""Views that the live system has seen give the same decisions; of another policy they do not."""

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from sqlalchemy import select
from tiny_models import write_tiny

from ridgeline.serving.control import autoscaler
from ridgeline.serving.control.autoscaler import Autoscaler, Scaling
from ridgeline.serving.control.recorded import (
    ADMIT,
    BATCH,
    ROUTE,
    SCALE,
    DifferenceError,
    Recorder,
    recorded,
    replay,
    routes,
)
from ridgeline.serving.control.scale_log import ScaleLog
from ridgeline.serving.engine import loop
from ridgeline.serving.engine.cache import block_bytes
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.messages import Abort, Add, Sampling
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.fake.server import FakeReplica
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.gateway import line
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.policy import sticky
from ridgeline.serving.policy.batch import Batcher, Sequence
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.pool import Pool
from ridgeline.serving.policy.route import route
from ridgeline.serving.policy.scale import Settings, Step, scale
from ridgeline.store.tables import decisions

PROMPTS = [f"You are assistant {number % 3}. " * 30 + f"Question {number}." for number in range(24)]


@pytest.fixture
async def gateway_run(monkeypatch):
    """A live gateway before two fake replicas of two slots, and what it decided meanwhile."""
    admitted: list[bytes] = []

    def pool(*made):
        return Recorder(Pool(*made), ADMIT, made, admitted.append)

    monkeypatch.setattr(line, "Pool", pool)
    setup = Setup(machine=Machine(Plain(fixed_s=0.001), 4000), max_seqs=4)
    config = GatewayConfig(port=0, models={"*": ModelSettings(slots=2)}, probe_starting_s=0.01)
    gateway = Gateway(config)
    async with FakeReplica(setup) as one, FakeReplica(setup) as other:
        try:
            for name, fake in (("a", one), ("b", other)):
                gateway.add_replica(ReplicaAddress(name, fake.url))
            url = await gateway.start()
            for name in ("a", "b"):
                assert await gateway.until_ready(name, 10.0)
            await _ask_all(url)
            details = await _decided(gateway)
        finally:
            await gateway.close()
    return admitted, details


async def _decided(gateway: Gateway) -> list[bytes]:
    """What it has written down of each request; it does so in batches, soon after the end."""
    async with asyncio.timeout(10):
        while True:
            with gateway.store.connect() as connection:
                rows = list(connection.execute(select(decisions.c.detail)))
            if len(rows) == len(PROMPTS):
                return [row.detail.encode() for row in rows]
            await asyncio.sleep(0.01)


async def _ask_all(url: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def ask(prompt: str) -> None:
            body = {"model": "fake", "prompt": prompt, "max_tokens": 5}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

        await asyncio.gather(*map(ask, PROMPTS[:12]))
        await asyncio.gather(*map(ask, PROMPTS[12:]))


async def test_routes_of_a_live_gateway_are_decided_the_same_again(gateway_run):
    _, details = gateway_run
    assert replay(routes(details), ROUTE) == len(PROMPTS)


async def test_a_changed_constant_of_routing_is_caught_at_its_first_view(gateway_run, monkeypatch):
    _, details = gateway_run
    monkeypatch.setattr(sticky, "REQUEST_TOKENS", sticky.REQUEST_TOKENS + 1)
    with pytest.raises(DifferenceError, match=r"route, view [0-9]+: route") as caught:
        replay(routes(details), ROUTE)
    told = caught.value.difference
    assert '"cost":' in told.recorded
    assert told.recorded != told.now


async def test_another_rule_is_caught_at_its_first_view(gateway_run):
    _, details = gateway_run
    with pytest.raises(DifferenceError, match="next in turn of 2"):
        replay(routes(details), ROUTE, lambda view: route(replace(view, rule="round-robin")))


async def test_admissions_of_a_live_gateway_are_decided_the_same_again(gateway_run):
    lines, _ = gateway_run
    assert replay(lines, ADMIT) == len(lines) > 2 * len(PROMPTS)


async def test_another_fair_share_of_slots_is_caught_at_its_first_view(gateway_run):
    lines, _ = gateway_run

    class Greedy(Pool):
        def pick(self, capacity, now_ns):
            return super().pick(capacity + 1, now_ns)

    with pytest.raises(DifferenceError, match=r"admit, view [0-9]+: pick"):
        replay(lines, ADMIT, Greedy)


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> list[bytes]:
    """What a live engine decided: chunks, prefixes, n > 1, preemption, and an abort."""
    folder: Path = tmp_path_factory.mktemp("tiny") / "llama"
    write_tiny(folder, "llama")
    lines: list[bytes] = []

    def batcher(limits, book):
        made = (limits, book.capacity_tokens // book.block_size, book.block_size, True)
        return Recorder(Batcher(limits, book), BATCH, made, lines.append)

    size = block_bytes(open_model(folder).architecture, 16, "fp32") * 14
    config = EngineConfig(
        folder, dtype="fp32", threads=1, kv_cache_bytes=size, max_batched_tokens=48, max_seqs=6
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Batcher", batcher)
        engine = loop.Engine(config)
    for number in range(10):
        prompt = [3 + (number % 2)] * 40 + [5 + number] * (number * 3)
        sampling = Sampling(max_tokens=12 + number, ignore_eos=True)
        engine.add(Add(f"r{number}", prompt, sampling, n=1 + (number == 3)))
    for _ in range(8):
        engine.step()
    engine.abort(Abort("r1"))
    while engine.busy:
        engine.step()
    assert engine.step().stats.preemptions > 0
    return lines


def test_steps_of_a_live_engine_are_decided_the_same_again(batches):
    assert replay(batches, BATCH) == len(batches) > 50


def test_another_victim_is_caught_at_its_first_view(batches):
    def oldest(running: list[Sequence]) -> Sequence:
        return running[0]

    def mutated(limits, blocks, size, caching):
        return Batcher(limits, BlockBook(blocks, size, caching=caching), victim=oldest)

    with pytest.raises(DifferenceError, match=r"batch, view [0-9]+: decide") as caught:
        replay(batches, BATCH, mutated)
    assert "preempted" in caught.value.difference.now


def test_a_smaller_budget_is_caught_at_its_first_view(batches):
    def mutated(limits, blocks, size, caching):
        fewer = replace(limits, max_batched_tokens=limits.max_batched_tokens - 1)
        return Batcher(fewer, BlockBook(blocks, size, caching=caching))

    with pytest.raises(DifferenceError, match=r"batch, view [0-9]+: decide"):
        replay(batches, BATCH, mutated)


class World:
    """What an autoscaler meets: a demand that comes and goes."""

    size = 1
    held = 0

    def resize(self, wanted: int) -> None:
        self.size = wanted

    async def look(self):
        return {"replicas": [], "queues": [], "held": {"m": self.held}}


@pytest.fixture
async def looks(store, monkeypatch) -> list[bytes]:
    """What a live autoscaler saw and decided."""
    lines: list[bytes] = []
    monkeypatch.setattr(autoscaler, "scale", recorded(scale, "scale", lines.append))
    settings = Settings(least=1, most=6, per_replica=2, up=Step(2, 60), down_after_s=0)
    world = World()
    scaler = Autoscaler(Scaling("m", settings), world, world.look, ScaleLog(store))
    for world.held in (0, 3, 9, 20, 20, 6, 1, 0):
        await scaler.round()
    return lines


async def test_numbers_of_replicas_are_decided_the_same_again(looks):
    assert replay(looks, SCALE) == len(looks) == 8


async def test_a_changed_constant_of_scaling_is_caught_at_its_first_view(looks):
    def mutated(seen, settings, floor):
        return scale(seen, replace(settings, per_replica=settings.per_replica * 1.5), floor=floor)

    with pytest.raises(DifferenceError, match="scale, view 1: scale"):
        replay(looks, SCALE, mutated)
