"""Streams whose replica dies go on elsewhere, exactly, or end with an error event."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import openai
import pytest

from ridgeline.serving.fake.server import FakeReplica
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.policy.health import Sign

QUICK = Setup(name="m", machine=Machine(Plain(fixed_s=0.005), 400_000))


@asynccontextmanager
async def two(
    tools, *, faults=(), second_faults=(), **config
) -> AsyncIterator[tuple[Gateway, openai.AsyncOpenAI]]:
    """A gateway before two fake replicas with a real engine's schedule; the first may fail."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(FakeReplica(QUICK, faults=faults))
        second = await stack.enter_async_context(FakeReplica(QUICK, faults=second_faults))
        gateway = Gateway(GatewayConfig(port=0, probe_every_s=5.0, probe_starting_s=0.01, **config))
        await gateway.start()
        stack.push_async_callback(gateway.close)
        gateway.add_replica(ReplicaAddress("first", first.url, "m"))
        await tools.until(lambda: tools.states(gateway) == ["ready"])
        gateway.add_replica(ReplicaAddress("second", second.url, "m"))
        await tools.until(lambda: tools.states(gateway) == ["ready", "ready"])
        yield gateway, await stack.enter_async_context(tools.client(gateway))


async def text_of(tools, client, **more) -> str:
    return await tools.text(await tools.ask(client, stream=True, max_tokens=40, **more))


@pytest.mark.parametrize(
    "how", [{"temperature": 0}, {"seed": 11}, {}], ids=["greedy", "seeded", "by chance"]
)
@pytest.mark.parametrize("fault", ["cut,after=7,times=1", "die,after=7,times=1"])
async def test_a_cut_stream_goes_on_exactly(tools, how, fault) -> None:
    async with two(tools) as (_, client):
        whole = await text_of(tools, client, **how)
    async with two(tools, faults=[fault]) as (gateway, client):
        answers = await asyncio.gather(*(text_of(tools, client, **how) for _ in range(4)))
        rows = gateway.status()["recent"]
        assert [row["status"] for row in rows] == [200] * 4
        assert any(row["retries"] for row in rows)
        assert [row["output_tokens"] for row in rows] == [40] * 4
        if how:
            assert answers == [whole] * 4
        else:
            assert all(len(answer) == len(whole) for answer in answers)


async def test_token_ids_that_only_we_asked_for_stay_here(tools) -> None:
    async with two(tools) as (_, client):
        async for chunk in await tools.ask(client, stream=True, max_tokens=5):
            assert "token_ids" not in chunk.to_json()
            assert chunk.usage is None
        kept = await tools.ask(
            client, stream=True, max_tokens=5, extra_body={"return_token_ids": True}
        )
        assert any("token_ids" in chunk.to_json() for chunk in [chunk async for chunk in kept])


async def test_where_nobody_can_go_on_the_stream_ends_with_an_error_event(tools) -> None:
    async with two(tools, faults=["cut,after=7"]) as (gateway, client):
        gateway._fleet.saw(gateway._fleet.replicas[1], Sign.NOT_READY)
        with pytest.raises(openai.APIError, match="first"):
            await text_of(tools, client, temperature=0)
        (row,) = gateway.status()["recent"]
        assert row["status"] == 502


async def test_answers_of_several_choices_end_with_an_error_instead(tools) -> None:
    in_turn = {"*": ModelSettings(rule="round-robin")}
    async with two(tools, faults=["cut,after=7"], models=in_turn) as (_, client):
        asked = (text_of(tools, client, n=2) for _ in range(2))  # one each
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert sorted(isinstance(end, openai.APIError) for end in ends) == [False, True]


async def test_a_replica_too_busy_to_go_on_is_not_taken_for_a_dead_one(tools) -> None:
    in_turn = {"*": ModelSettings(rule="round-robin")}
    faults = {"faults": ["cut,after=7"], "second_faults": ["error,status=503"]}
    async with two(tools, models=in_turn, **faults) as (gateway, client):
        asked = (text_of(tools, client, temperature=0) for _ in range(6))
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(end, openai.APIError) for end in ends)
        assert any("cannot go on" in str(end) for end in ends)
        assert gateway._fleet.replicas[1].failures == 0
