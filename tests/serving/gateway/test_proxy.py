"""What a client meets when replicas fail, hang, refuse or die, and what a replica meets."""

import asyncio
import random
from decimal import Decimal

import openai
import pytest
from aiohttp import ClientSession

from ridgeline.serving.gateway.config import ModelSettings, ReplicaAddress, Timeouts
from ridgeline.serving.policy.failures import RetryBudget
from ridgeline.serving.policy.health import FAILED_AT
from ridgeline.serving.policy.price import Price

PRICE = Price(Decimal(0), Decimal(0), Decimal(1))
PAID = {"*": ModelSettings(rule="least-load", price=PRICE)}


async def test_a_herd_in_one_instant_spreads_over_the_replicas(tools) -> None:
    gate = asyncio.Event()
    replicas = [tools.replica(wait=gate) for _ in range(4)]
    async with tools.gateway(*replicas) as gateway, tools.client(gateway) as client:
        herd = [asyncio.create_task(tools.ask(client)) for _ in range(32)]
        await tools.until(lambda: sum(one.running for one in replicas) == 32)
        assert [one.running for one in replicas] == [8, 8, 8, 8]
        gate.set()
        await asyncio.gather(*herd)


async def test_round_robin_takes_turns(tools) -> None:
    replicas = [tools.replica(name=f"n{i}") for i in range(3)]
    async with (
        tools.gateway(*replicas, models={"*": ModelSettings(rule="round-robin")}) as gateway,
        tools.client(gateway) as client,
    ):
        served = [(await tools.ask(client)).served_by for _ in range(6)]
        assert served == ["n0", "n1", "n2", "n0", "n1", "n2"]


# Whose fault it is.


@pytest.mark.parametrize("status", [400, 404, 422, 429])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_replicas_error_passes_untouched_and_takes_it_out_of_nothing(
    tools, status, stream
) -> None:
    error = {"error": {"message": "Too long by 7.", "code": "odd", "extra": [1]}}
    replica = tools.replica(status=status, error=error, error_headers={"Retry-After": "9"})
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        for _ in range(10):
            with pytest.raises(openai.APIStatusError) as caught:
                await tools.ask(client, stream=stream)
            assert caught.value.status_code == status
            assert caught.value.response.json() == error
            assert caught.value.response.headers["Retry-After"] == "9"
        (shown,) = gateway.status()["replicas"]
        assert (shown["state"], shown["failures"], shown["in_flight"]) == ("ready", 0, 0)
        assert len(replica.seen) == 10  # none was sent twice
        assert gateway.status()["errors"][0]["error"] == "Too long by 7."


async def test_a_replica_that_only_fails_goes_out_and_comes_back_by_a_token(tools) -> None:
    error = {"error": {"message": "CUDA error"}}
    broken, sound = tools.replica(status=500, error=error, first_token=200), tools.replica()
    async with tools.gateway(broken, sound) as gateway, tools.client(gateway) as client:
        broken.first_token = 500  # its health page goes on saying 200
        for _ in range(12):
            await tools.ask(client)
        assert tools.states(gateway) == ["down", "ready"]
        assert gateway.status()["replicas"][0]["failures"] == FAILED_AT
        assert gateway.status()["errors"] == []  # another one answered each of them
        broken.first_token = broken.status = 200
        await tools.until(lambda: tools.states(gateway) == ["ready", "ready"])


async def test_a_busy_replicas_503_is_tried_elsewhere(tools) -> None:
    busy = tools.replica(status=503, error={"error": {"message": "full"}})
    free = tools.replica(name="free")
    async with tools.gateway(busy, free) as gateway, tools.client(gateway) as client:
        for _ in range(4):
            assert (await tools.ask(client)).served_by == "free"
        assert gateway.status()["replicas"][0]["state"] == "ready"
        assert any(row["retries"] == 1 for row in gateway.status()["recent"])
        free.status, free.error = 503, {"error": {"message": "full too"}}
        with pytest.raises(openai.InternalServerError) as caught:
            await tools.ask(client)
        assert caught.value.response.json()["error"]["message"] in ("full", "full too")


async def test_a_dead_replicas_requests_go_elsewhere_and_it_comes_back(tools) -> None:
    dead, alive = tools.replica(name="back"), tools.replica(name="alive")
    async with (
        tools.gateway(dead, alive, probe_every_s=0.2) as gateway,
        tools.client(gateway) as client,
    ):
        await dead.stop()
        served = {(await tools.ask(client)).served_by for _ in range(6)}
        assert served == {"alive"}
        await tools.until(lambda: tools.states(gateway) == ["down", "ready"])
        await dead.start(dead.port)
        await tools.until(lambda: tools.states(gateway) == ["ready", "ready"])
        served = {(await tools.ask(client)).served_by for _ in range(6)}
        assert served == {"alive", "back"}


async def test_a_death_before_the_first_byte_is_retried_for_streams_too(tools) -> None:
    dying, alive = tools.replica(dies_after=0), tools.replica()
    async with tools.gateway(dying, alive) as gateway, tools.client(gateway) as client:
        for _ in range(4):
            assert await tools.text(await tools.ask(client, stream=True)) == "Paris."
        assert sum(row["retries"] for row in gateway.status()["recent"]) >= 1


async def test_when_nobody_is_left_to_try_it_is_502_after_a_bounded_number(tools) -> None:
    replicas = [tools.replica(dies_after=0) for _ in range(5)]
    async with tools.gateway(*replicas, retries=2) as gateway, tools.client(gateway) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await tools.ask(client)
        assert caught.value.status_code == 502
        assert caught.value.code == "upstream_failed"
        assert sum(len(one.seen) for one in replicas) == 3


async def test_without_a_budget_nothing_is_sent_again(tools, monkeypatch) -> None:
    replicas = [tools.replica(dies_after=0) for _ in range(5)]
    broke = RetryBudget(saved=0, share=0, most=0)
    monkeypatch.setattr("ridgeline.serving.gateway.app.RetryBudget", lambda: broke)
    async with tools.gateway(*replicas) as gateway, tools.client(gateway) as client:
        with pytest.raises(openai.InternalServerError):
            await tools.ask(client)
        assert sum(len(one.seen) for one in replicas) == 1


async def test_a_connection_that_went_stale_costs_the_client_nothing(tools) -> None:
    replica = tools.replica()
    async with tools.gateway(replica, probe_every_s=30) as gateway, tools.client(gateway) as client:
        await tools.ask(client)
        await replica.stop()  # closes the connections that the gateway keeps
        await replica.start(replica.port)
        assert (await tools.ask(client)).choices[0].message.content == "Paris."
        assert tools.states(gateway) == ["ready"]


async def test_a_draining_or_removed_replica_gets_nothing_new_and_ends_what_it_has(tools) -> None:
    gate = asyncio.Event()
    one, other = tools.replica(name="one", wait=gate), tools.replica(name="other")
    async with tools.gateway(one, other) as gateway, tools.client(gateway) as client:
        old = asyncio.create_task(tools.ask(client))
        await tools.until(lambda: one.running == 1)
        removed = asyncio.create_task(gateway.remove_replica("r0", grace_s=5))
        await tools.until(lambda: tools.states(gateway) == ["draining", "ready"])
        assert {(await tools.ask(client)).served_by for _ in range(5)} == {"other"}
        gate.set()
        await removed
        assert (await old).served_by == "one"
        assert tools.states(gateway) == ["ready"]
        gateway.add_replica(ReplicaAddress("r0", one.url))
        await tools.until(lambda: tools.states(gateway) == ["ready", "ready"])


# Deadlines.


async def test_a_replica_that_never_answers_is_504_and_let_go(tools) -> None:
    replica = tools.replica(wait=asyncio.Event())
    quick = Timeouts(first_byte_s=0.1)
    async with tools.gateway(replica, timeouts=quick) as gateway, tools.client(gateway) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await tools.ask(client)
        assert caught.value.status_code == 504
        await tools.until(lambda: replica.cut == 1)
        assert tools.states(gateway) == ["ready"]  # busy is not dead
        assert len(replica.seen) == 1  # and it is not asked again


async def test_a_stream_that_falls_silent_ends_with_an_error_event(tools) -> None:
    replica = tools.replica(between_s=0.0)
    quick = Timeouts(idle_s=0.1)
    async with tools.gateway(replica, timeouts=quick) as gateway, tools.client(gateway) as client:
        replica.between_s = 30.0
        with pytest.raises(openai.APIError, match=r"sent nothing for 0\.1 s"):
            await tools.text(await tools.ask(client, stream=True))
        await tools.until(lambda: replica.cut == 1)


# Streams that end, and streams that do not.


@pytest.mark.parametrize("dies_after", [1, 2])
async def test_a_death_in_mid_stream_is_told_and_never_looks_like_an_end(tools, dies_after) -> None:
    replica = tools.replica(dies_after=dies_after, between_s=0.005)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        said: list[str] = []

        async def listen() -> None:
            async for chunk in await tools.ask(client, stream=True):
                said.append(chunk.choices[0].delta.content)  # noqa: PERF401  (it ends in an error)

        with pytest.raises(openai.APIError, match="died during its answer") as caught:
            await listen()
        assert "".join(said) == "".join(("Pa", "ris")[:dies_after])
        assert caught.value.code == "upstream_failed"
        (row,) = gateway.status()["errors"]
        assert (row["status"], row["output_tokens"]) == (502, dies_after)
        assert len(replica.seen) == 1  # not sent again: the client has text already


async def test_a_stream_that_lacks_more_than_done_ends_with_an_error_event(tools) -> None:
    replica = tools.replica(says_done=False)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        assert await tools.text(await tools.ask(client, stream=True)) == "Paris."
        asked = await tools.ask(client, stream=True, stream_options={"include_usage": True})
        replica.takes_usage_option = False  # so that it does not come
        with pytest.raises(openai.APIError, match="ended its answer too early"):
            await tools.text(asked)


async def test_events_pass_as_they_come_not_at_the_end(tools) -> None:
    gate = asyncio.Event()
    replica = tools.replica(wait=gate)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        asking = asyncio.create_task(tools.ask(client, stream=True))
        await tools.until(lambda: replica.running == 1)
        replica.between_s = 0.05
        gate.set()
        times = [asyncio.get_running_loop().time() async for _ in await asking]
        assert times[3] - times[0] > 0.1


# Usage.


async def test_usage_is_counted_and_hidden_from_who_did_not_ask(tools) -> None:
    replica = tools.replica()
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        chunks = [chunk async for chunk in await tools.ask(client, stream=True)]
        assert replica.seen[0].body["stream_options"] == {"include_usage": True}
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)
        await tools.until(lambda: gateway.status()["requests"] == 1)
        assert gateway.status()["recent"][0]["prompt_tokens"] == 7


async def test_usage_is_shown_to_who_asked_and_their_body_is_untouched(tools) -> None:
    replica = tools.replica()
    asked = {"include_usage": True}
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        stream = await tools.ask(client, stream=True, stream_options=asked)
        assert [c.usage.prompt_tokens async for c in stream if c.usage] == [7]


async def test_a_replica_that_rejects_the_option_is_asked_without_it_from_then_on(tools) -> None:
    replica = tools.replica(takes_usage_option=False)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        for _ in range(3):
            assert await tools.text(await tools.ask(client, stream=True)) == "Paris."
        assert ["stream_options" in seen.body for seen in replica.seen] == [
            True,
            False,
            False,
            False,
        ]
        await tools.until(lambda: gateway.status()["requests"] == 3)
        assert gateway.status()["recent"][0]["output_tokens"] == 3  # by the events with text


async def test_a_client_cannot_switch_counting_off_with_a_bad_request(tools) -> None:
    error = {"error": {"message": "stream_options is fine, but x is not"}}
    replica = tools.replica(status=400, error=error)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        with pytest.raises(openai.BadRequestError):
            await tools.ask(client, stream=True)
        replica.status = 200
        await tools.text(await tools.ask(client, stream=True))
        assert replica.seen[-1].body["stream_options"] == {"include_usage": True}


# Cancellation.


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_leaves_frees_the_replica_at_once(tools, stream) -> None:
    replica = tools.replica(before_s=30)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        asking = asyncio.create_task(tools.ask(client, stream=stream))
        await tools.until(lambda: replica.running == 1)
        asking.cancel()
        await tools.until(lambda: replica.cut == 1 and gateway.status()["requests"] == 1)
        (row,) = gateway.status()["recent"]
        assert row["status"] == 499
        assert gateway.status()["errors"] == []
        assert gateway.status()["in_flight"] == 0


async def test_a_whole_answer_that_is_paid_for_is_read_though_its_client_left(tools) -> None:
    replica = tools.replica(wait=asyncio.Event())
    async with (
        tools.gateway(replica, models=PAID) as gateway,
        tools.client(gateway) as client,
    ):
        asking = asyncio.create_task(tools.ask(client))
        await tools.until(lambda: replica.running == 1)
        asking.cancel()
        await tools.until(lambda: gateway.status()["requests"] == 1)
        assert gateway.status()["recent"][0]["status"] == 499
        assert replica.running == 1  # nothing but its answer's end says what it used
        replica.wait.set()
        await tools.until(lambda: bool(tools.entries(gateway)))
        (entry,) = tools.entries(gateway)
        assert (entry.basis, entry.status, entry.output_tokens) == ("usage", 499, 3)
        assert entry.usd == Decimal("0.000003")


async def test_a_gateway_that_closes_reads_no_further(tools) -> None:
    replica = tools.replica(wait=asyncio.Event())  # it never answers
    async with asyncio.timeout(10):
        async with tools.gateway(replica, models=PAID) as gateway, tools.client(gateway) as client:
            asking = asyncio.create_task(tools.ask(client))
            await tools.until(lambda: replica.running == 1)
            asking.cancel()
            await tools.until(lambda: gateway.status()["requests"] == 1)
    assert replica.cut == 1


async def test_a_client_that_leaves_in_mid_stream_is_billed_for_what_it_got(tools) -> None:
    replica = tools.replica(words=("word ",) * 1000, between_s=0.002)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        stream = await tools.ask(client, stream=True)
        got = 0
        async for chunk in stream:
            got += bool(chunk.choices[0].delta.content)
            if got == 5:
                break
        await stream.close()
        await tools.until(lambda: replica.cut == 1 and gateway.status()["requests"] == 1)
        assert 5 <= gateway.status()["recent"][0]["output_tokens"] < 1000


async def test_64_streams_with_random_cancels_leave_nothing_behind(tools) -> None:
    chance = random.Random(7)
    replicas = [tools.replica(words=("a",) * 40, between_s=0.002) for _ in range(3)]
    async with tools.gateway(*replicas) as gateway, ClientSession() as session:
        before = asyncio.all_tasks()
        path = f"{gateway.url}/v1/chat/completions"
        body = {"model": "m", "stream": True, "messages": []}

        async def one(leave_after: int | None) -> str:
            async with session.post(path, json=body) as answer:
                received = b""
                async for line in answer.content:
                    received += line
                    if leave_after is not None and received.count(b"data:") > leave_after:
                        answer.close()
                        return "left"
                assert received.endswith(b"data: [DONE]\n\n")
                assert received.count(b'"content": "a"') == 40
                return "whole"

        plans = [chance.choice([None, chance.randrange(40)]) for _ in range(64)]
        ends = await asyncio.gather(*map(one, plans))
        assert ends.count("left") == sum(plan is not None for plan in plans)
        await tools.until(lambda: gateway.status()["in_flight"] == 0)
        await tools.until(lambda: all(one.running == 0 for one in replicas))
        status = gateway.status()
        assert [one["in_flight"] for one in status["replicas"]] == [0, 0, 0]
        assert status["requests"] == 64
        assert [one["state"] for one in status["replicas"]] == ["ready"] * 3
        await session.close()
        await tools.until(lambda: not _alive(before))


def _alive(before: set[asyncio.Task]) -> set[asyncio.Task]:
    """Tasks that are neither of before nor those that connections between requests have."""
    idle = ("RequestHandler.start", "connect", "Connector")
    return {
        task
        for task in asyncio.all_tasks() - before
        if not any(word in repr(task.get_coro()) for word in idle)
    }
