"""What a request used is settled however it ends, and its tenant's turns pay for all of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import openai
import pytest
from sqlalchemy import select

from ridgeline.serving.fake.server import FakeReplica
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.decisions import decision
from ridgeline.serving.gateway.line import Ticket
from ridgeline.store.database import open_store
from ridgeline.store.tables import entries, reservations


@pytest.fixture
def served(tmp_path):
    """A gateway before fake replicas, whose usage logs are in memory, and a client of it."""

    @asynccontextmanager
    async def serve(*replicas: FakeReplica) -> AsyncIterator[SimpleNamespace]:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        gateway = Gateway(GatewayConfig(port=0, database=url))
        await gateway.start()
        store = open_store(url)
        for number, replica in enumerate(replicas):
            gateway.add_replica(ReplicaAddress(f"r{number}", replica.url, "m"))
            assert await gateway.until_ready(f"r{number}", 20)
        client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)
        try:
            yield SimpleNamespace(
                client=client,
                entries=lambda: _settled(store),
                why=lambda request_id: decision(store, request_id),
            )
        finally:
            await client.close()
            await gateway.close()
            store.dispose()

    return serve


async def _settled(store) -> list:
    """The entries, once nothing is reserved."""
    async with asyncio.timeout(15):
        while True:
            with store.connect() as connection:
                if not connection.execute(select(reservations)).all():
                    return connection.execute(select(entries)).all()
            await asyncio.sleep(0.02)


def _ask(client: openai.AsyncOpenAI, **options):
    messages = [{"role": "user", "content": "hello"}]
    return client.chat.completions.create(model="m", messages=messages, **options)


async def test_a_client_that_leaves_before_a_whole_answer_pays_for_it(served) -> None:
    async with FakeReplica(Setup(name="m")) as replica, served(replica) as here:
        asking = asyncio.create_task(_ask(here.client, max_tokens=500))
        counts = replica.replica.engine.counts
        began = counts["generation_tokens"]  # of the token that made it ready
        async with asyncio.timeout(10):
            # A count that the engine raises; there is no event for it.
            while counts["generation_tokens"] < began + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        (entry,) = await here.entries()
        logged = replica.replica.log.find(entry.request_id)
        assert (entry.basis, entry.status) == ("replica log", 499)
        assert 3 <= entry.output_tokens == logged.completion_tokens < 500


async def test_a_refusal_before_it_does_not_make_a_broken_stream_free(served) -> None:
    busy = FakeReplica(Setup(name="m", time_scale=0), faults=["error,status=503"])
    breaks = FakeReplica(Setup(name="m", time_scale=0), faults=["event,after=4"])
    async with busy, breaks, served(busy, breaks) as here:
        with pytest.raises(openai.APIError, match="breaks this stream"):
            async for _ in await _ask(here.client, stream=True, max_tokens=9):
                pass
        (entry,) = await here.entries()
        assert (entry.basis, entry.replica) == ("replica log", "r1")
        assert entry.output_tokens >= 4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_turns_pay_for_whole_answers_as_for_streams(served, monkeypatch, stream) -> None:
    said = []
    monkeypatch.setattr(Ticket, "said", lambda _, tokens: said.append(tokens))
    async with FakeReplica(Setup(name="m", time_scale=0)) as replica, served(replica) as here:
        answer = await _ask(here.client, stream=stream, max_tokens=5)
        if stream:
            assert [chunk async for chunk in answer]
        await here.entries()
        assert said[-1] == 5


async def test_what_was_charged_is_part_of_the_record(served) -> None:
    async with FakeReplica(Setup(name="m", time_scale=0)) as replica, served(replica) as here:
        await _ask(here.client, max_tokens=3)
        (entry,) = await here.entries()
        told = here.why(entry.request_id)
        assert told["basis"] == entry.basis == "usage"
        assert told["reasons"]["charge"] == "its answer came to its end"
