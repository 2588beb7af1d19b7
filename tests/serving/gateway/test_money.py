"""Every request is charged what it used: once, whoever left, died or said nothing about usage."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from types import SimpleNamespace

import openai
import pytest
from aiohttp import ClientSession, web
from sqlalchemy import select

from ridgeline.serving.gateway.config import ModelSettings
from ridgeline.serving.gateway.tenants import KeySpec, Tenants
from ridgeline.serving.policy.price import Price
from ridgeline.serving.tenant_spec import BudgetSpec, LimitsSpec, TenantSpec
from ridgeline.store.database import open_store
from ridgeline.store.tables import accounts, entries, reservations

PRICE = Price(Decimal(10), Decimal(1), Decimal(100))
SETTINGS = {"*": ModelSettings(rule="least-load", price=PRICE, max_output_tokens=50)}


@pytest.fixture
def shop(tools, tmp_path):
    """Gateways with a database in a file, and a tenant's key for them."""

    @asynccontextmanager
    async def open_shop(*replicas, limits=None, budget=None, **config) -> AsyncIterator[object]:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        store = open_store(url)
        tenants = Tenants(store)
        tenants.sync([TenantSpec(name="search", limits=limits or LimitsSpec(), budget=budget)])
        key = tenants.create_key(KeySpec(tenant="search", name="k"), actor="test").secret
        more = {"models": SETTINGS, "database": url, **config}
        async with (
            tools.gateway(*replicas, **more) as gateway,
            tools.client(gateway, api_key=key) as client,
        ):
            yield SimpleNamespace(
                gateway=gateway,
                client=client,
                key=key,
                tenants=tenants,
                entries=lambda: _rows(store, entries),
                reservations=lambda: _rows(store, reservations),
                accounts=lambda: _rows(store, accounts),
            )
        store.dispose()

    return open_shop


def _rows(store, table):
    with store.connect() as connection:
        return connection.execute(select(table)).all()


async def settled(tools, shop, count=1, within_s=10.0):
    await tools.until(
        lambda: len(shop.entries()) == count and not shop.reservations(), within_s=within_s
    )
    return shop.entries()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_answer_is_charged_by_its_usage(tools, shop, stream) -> None:
    async with shop(tools.replica()) as here:
        answer = await tools.ask(here.client, stream=stream)
        if stream:
            chunks = [chunk async for chunk in answer]
            assert all(chunk.usage is None for chunk in chunks)  # asked for by us alone
        (entry,) = await settled(tools, here)
        assert (entry.tenant, entry.input_tokens, entry.output_tokens) == ("search", 7, 3)
        assert (entry.basis, entry.status) == ("usage", 200)
        assert entry.usd == (7 * PRICE.input_usd + 3 * PRICE.output_usd) / 1_000_000


async def test_a_retried_request_is_charged_once(tools, shop) -> None:
    dead, sound = tools.replica(dies_after=0), tools.replica()
    async with shop(dead, sound) as here:
        for _ in range(4):
            await tools.ask(here.client)
        rows = await settled(tools, here, 4)
        assert [row.output_tokens for row in rows] == [3] * 4
        assert {row.replica for row in rows} == {"r1"}


async def test_a_refused_request_costs_nothing(tools, shop) -> None:
    async with shop(tools.replica(status=400, error={"error": {"message": "no"}})) as here:
        with pytest.raises(openai.BadRequestError):
            await tools.ask(here.client)
        await tools.until(lambda: not here.reservations())
        assert here.entries() == []


async def test_zero_usage_is_zero_and_none_is_counted_here(tools, shop) -> None:
    replica = tools.replica()
    async with shop(replica) as here:
        replica._usage = lambda: {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        await tools.ask(here.client)
        (entry,) = await settled(tools, here)
        assert (entry.usd, entry.basis) == (0, "usage")
        replica.takes_usage_option = False
        await tools.text(await tools.ask(here.client, stream=True))
        row = (await settled(tools, here, 2))[-1]
        assert (row.output_tokens, row.basis) == (3, "own count")
        assert row.input_tokens > 0


async def test_a_client_that_leaves_pays_for_what_had_come(tools, shop) -> None:
    replica = tools.replica(words=tuple("abcdefghij"), between_s=0.02)
    async with shop(replica) as here:
        stream = await tools.ask(here.client, stream=True)
        seen = 0
        async for chunk in stream:
            seen += bool(chunk.choices and chunk.choices[0].delta.content)
            if seen == 3:
                break
        await stream.close()
        (entry,) = await settled(tools, here)  # this replica keeps no log
        assert entry.basis == "streamed"
        assert 3 <= entry.output_tokens < 10
        assert here.gateway.status()["in_flight"] == 0


async def test_a_client_that_leaves_the_queue_pays_nothing_and_holds_nothing(tools, shop) -> None:
    replica = tools.replica(wait=asyncio.Event())
    one_slot = {"*": ModelSettings(rule="least-load", slots=1, price=PRICE)}
    async with shop(replica, models=one_slot) as here:
        first = asyncio.create_task(tools.ask(here.client))
        await tools.until(lambda: len(replica.seen) == 1)
        waiting = asyncio.create_task(tools.ask(here.client))
        await tools.until(lambda: len(here.reservations()) == 2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await tools.until(lambda: len(here.reservations()) == 1)
        replica.wait.set()
        await first
        await settled(tools, here)
        assert len(replica.seen) == 1  # the second never ran
        await tools.ask(here.client)  # and the slot is free


async def test_a_limit_says_when_and_a_request_beyond_it_that_it_never_will(tools, shop) -> None:
    async with shop(tools.replica(), limits=LimitsSpec(output_tokens_per_minute=60)) as here:
        with pytest.raises(openai.BadRequestError) as never:
            await tools.ask(here.client, max_tokens=61)
        assert never.value.code == "request_too_large"
        await tools.ask(here.client, max_tokens=40)  # uses 3, which count for a minute
        await settled(tools, here)
        await tools.ask(here.client, max_tokens=57)
        await settled(tools, here, 2)
        with pytest.raises(openai.RateLimitError) as later:
            await tools.ask(here.client, max_tokens=57)
        assert 1 <= int(later.value.response.headers["Retry-After"]) <= 61
        assert len(await settled(tools, here, 2)) == 2


async def test_who_pays_for_output_gets_a_bound_where_the_request_has_none(tools, shop) -> None:
    replica = tools.replica()
    budget = BudgetSpec(usd=Decimal("0.01"), per="day", timezone="Asia/Kolkata")
    async with shop(replica, budget=budget) as here:
        await tools.ask(here.client)
        assert replica.seen[-1].body["max_tokens"] == 50
        await tools.ask(here.client, max_tokens=9)
        assert replica.seen[-1].body["max_tokens"] == 9


async def test_parallel_requests_never_pass_a_budgets_last_dollar(tools, shop) -> None:
    replica = tools.replica()
    budget = BudgetSpec(usd=Decimal("0.05"), per="month", timezone="America/New_York")
    async with shop(replica, budget=budget) as here:
        answers = await asyncio.gather(
            *(tools.ask(here.client, max_tokens=50) for _ in range(100)), return_exceptions=True
        )
        served = [one for one in answers if not isinstance(one, Exception)]
        assert all(
            isinstance(one, openai.RateLimitError) and one.code == "insufficient_quota"
            for one in answers
            if isinstance(one, Exception)
        )
        rows = await settled(tools, here, len(served))
        assert sum(row.usd for row in rows) <= Decimal("0.05")
        assert served


async def test_a_key_sees_and_uses_only_its_own(tools, shop) -> None:
    replica = tools.replica(models=["m", "secret-model"])
    async with shop(replica, admin_key="root-key") as here:
        spec = KeySpec(tenant="search", name="narrow", models=("m",))
        narrow = here.tenants.create_key(spec, actor="test").secret
        viewer = here.tenants.create_key(
            KeySpec(tenant="search", name="v", role="viewer"), actor="test"
        ).secret
        async with tools.client(here.gateway, api_key=narrow) as client:
            assert [one.id async for one in client.models.list()] == ["m"]
            with pytest.raises(openai.NotFoundError) as caught:
                await tools.ask(client, model="secret-model")
            assert caught.value.code == "model_not_found"
            await tools.ask(client, model="m")
        async with ClientSession() as session:
            for path in ("/metrics", "/console.json"):
                for key, status in ((narrow, 403), (viewer, (200, 404)), ("root-key", (200, 404))):
                    headers = {"Authorization": f"Bearer {key}"}
                    async with session.get(here.gateway.url + path, headers=headers) as answer:
                        wanted = status if isinstance(status, tuple) else (status, 404)
                        assert answer.status in wanted
            async with session.get(f"{here.gateway.url}/metrics") as answer:
                assert answer.status == 401


async def test_no_secret_is_logged(tools, shop, tmp_path) -> None:
    log = tmp_path / "requests.jsonl"
    async with shop(tools.replica(), log_file=str(log)) as here:
        await tools.ask(here.client, extra_headers={"X-Request-Id": f"trace-{here.key}"})
        key = here.key
    text = log.read_text()
    assert json.loads(text.splitlines()[0])["tenant"] == "search"
    assert key not in text
    assert "capital of France" not in text


async def test_a_client_that_hangs_up_at_the_very_end_still_pays(tools, shop, monkeypatch) -> None:
    ends = web.StreamResponse.write_eof

    async def gone(response, data=b"") -> None:
        if "X-Ridgeline-Replica" in response.headers and response.status == 200:
            raise ConnectionResetError("the client left")
        await ends(response, data)  # the replica's own

    monkeypatch.setattr(web.StreamResponse, "write_eof", gone)
    async with shop(tools.replica()) as here:
        with contextlib.suppress(openai.APIError):
            await tools.text(await tools.ask(here.client, stream=True))
        (entry,) = await settled(tools, here)
        assert (entry.output_tokens, entry.basis, entry.status) == (3, "usage", 499)


async def test_a_query_is_no_part_of_the_endpoint(tools, shop) -> None:
    replica = tools.replica()
    async with shop(replica) as here:
        await tools.ask(here.client, extra_query={"x": "y" * 500})
        (entry,) = await settled(tools, here)
        assert entry.endpoint == "/v1/chat/completions"  # the column has 32 characters


async def test_all_prompts_of_a_completion_are_reserved(tools, shop) -> None:
    replica = tools.replica(wait=asyncio.Event())
    async with shop(replica) as here:
        asking = asyncio.create_task(
            here.client.completions.create(model="m", prompt=["a"] * 20, max_tokens=9, n=2)
        )
        await tools.until(lambda: bool(replica.seen))
        (row,) = here.reservations()
        assert row.output_tokens == 20 * 2 * 9
        replica.wait.set()
        await asking


async def test_a_count_that_no_ledger_can_hold_is_refused_and_harms_nobody(tools, shop) -> None:
    async with shop(tools.replica()) as here:
        with pytest.raises(openai.BadRequestError, match="fewer answers"):
            await tools.ask(here.client, n=2**31 - 1, max_tokens=2**31 - 1)
        await tools.ask(here.client)
        assert len(await settled(tools, here)) == 1


async def test_an_error_that_calls_itself_200_costs_nothing(tools, shop) -> None:
    replica = tools.replica()
    async with shop(replica) as here:
        replica._whole = lambda _: {"error": {"message": "out of memory"}}
        await here.client.chat.completions.with_raw_response.create(model="m", messages=[])
        await tools.until(lambda: not here.reservations())
        assert here.entries() == []
        assert here.gateway.status()["recent"][0]["status"] == 200


async def test_an_answer_that_cannot_be_translated_is_settled_by_the_recovery(tools, shop) -> None:
    replica = tools.replica()
    async with shop(replica) as here:
        replica._whole = lambda _: {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        asked = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
        ended = []
        here.gateway._ledger.end_unknown = _noting(ended, here.gateway._ledger.end_unknown)
        async with (
            ClientSession(headers={"x-api-key": here.key}) as session,
            session.post(f"{here.gateway.url}/v1/messages", json=asked) as answer,
        ):
            assert answer.status == 502
        await tools.until(lambda: bool(ended))
        assert ended == [502]


def _noting(ended, end_unknown):
    async def noting(request_id: str, status: int) -> None:
        ended.append(status)
        await end_unknown(request_id, status)

    return noting


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_prompts_and_answers_are_logged_only_where_that_is_asked_for(
    tools, shop, tmp_path, stream
) -> None:
    log = tmp_path / "requests.jsonl"
    async with shop(tools.replica(), log_file=str(log), log_prompts=True) as here:
        answer = await tools.ask(here.client, stream=stream)
        if stream:
            await tools.text(answer)
        await settled(tools, here)
    line = json.loads(log.read_text().splitlines()[0])
    assert "capital of France" in line["asked"]
    assert "ris" in line["answered"]
