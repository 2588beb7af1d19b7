"""The fake replica over real sockets: what clients get, what is counted, and how it fails."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from ridgeline.serving.fake.server import FakeReplica
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.fake.timing import Machine, Plain

FAST = Setup(time_scale=0)
ASK = {"model": "fake", "prompt": "tell me something", "max_tokens": 8}
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


class Client:
    """Asks one replica."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(self._url + path) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
        async with self._session.post(self._url + path, json=body, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def stream(self, path: str, body: dict[str, Any], **headers: str) -> list[Any]:
        """Each event's data; "[DONE]" as it is. Raises ClientError where the stream breaks."""
        events = []
        async with self._session.post(
            self._url + path, json={"stream": True, **body}, headers=headers
        ) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"data: "):
                    data = line[6:].strip()
                    events.append("[DONE]" if data == b"[DONE]" else _json(data))
        return events


async def forever(client: Client, path: str) -> None:
    while True:
        await client.get(path)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def texts(events: list[Any]) -> list[str]:
    choices = [one["choices"][0] for one in events if one != "[DONE]" and one["choices"]]
    said = [one.get("text") or one.get("delta", {}).get("content") for one in choices]
    return [text for text in said if text]


@asynccontextmanager
async def client_of(setup: Setup = FAST, *faults: str) -> AsyncIterator[tuple[FakeReplica, Client]]:
    async with FakeReplica(setup, faults=faults) as replica, ClientSession() as session:
        yield replica, Client(session, replica.url)


async def test_whole_and_streamed_answers_say_the_same():
    async with client_of() as (_, client):
        for path, body in (("/v1/completions", ASK), ("/v1/chat/completions", CHAT)):
            status, whole = await client.post(path, body)
            assert status == 200
            events = await client.stream(path, body)
            choice = whole["choices"][0]
            text = choice.get("text") or choice["message"]["content"]
            assert "".join(texts(events)) == text
            assert len(texts(events)) == 8 == whole["usage"]["completion_tokens"]
            assert events[-1] == "[DONE]"
            assert events[-2]["choices"][0]["finish_reason"] == choice["finish_reason"] == "length"


async def test_usage_counts_the_prompt_once_and_comes_where_it_is_asked_for():
    async with client_of() as (_, client):
        events = await client.stream("/v1/completions", {**ASK, **USAGE, "n": 3})
        assert events[-2]["choices"] == []
        assert events[-2]["usage"]["prompt_tokens"] == 5  # 17 characters
        assert events[-2]["usage"]["completion_tokens"] == 24
        without = await client.stream("/v1/completions", ASK)
        assert all("usage" not in event for event in without[:-1])


async def test_a_prefix_that_was_computed_is_cached():
    long = {**ASK, "prompt": "word" * 64}
    async with client_of() as (replica, client):
        for cached in (0, 48):  # four blocks, of which at least one token is computed anew
            _, answer = await client.post("/v1/completions", long)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert replica.replica.engine.counts["prefix_cache_hits"] == 48
        _, other = await client.post("/v1/completions", {**long, "cache_salt": "another tenant"})
        assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_an_answer_without_max_tokens_ends_by_itself():
    async with client_of(replace(FAST, answer_tokens=5)) as (_, client):
        _, answer = await client.post("/v1/chat/completions", {**CHAT, "max_tokens": None})
        assert answer["usage"]["completion_tokens"] == 5
        assert answer["choices"][0]["finish_reason"] == "stop"


async def test_steps_take_the_time_of_the_model():
    machine = Machine(Plain(fixed_s=0.01, prefill_tokens_per_s=1000), 1000)
    loop = asyncio.get_running_loop()
    async with client_of(Setup(machine=machine)) as (_, client):
        began_s = loop.time()
        await client.post("/v1/completions", {**ASK, "prompt": "word" * 50})
        assert loop.time() - began_s >= 0.05 + 8 * 0.01 - 0.002


async def test_where_the_cache_is_full_sequences_are_preempted_and_still_end():
    setup = replace(FAST, machine=Machine(Plain(), 160), prefix_caching=False)
    async with client_of(setup) as (replica, client):
        bodies = [{**ASK, "prompt": f"{number:04}" * 16, "max_tokens": 100} for number in range(4)]
        answers = await asyncio.gather(*(client.post("/v1/completions", one) for one in bodies))
        assert [answer["usage"]["completion_tokens"] for _, answer in answers] == [100] * 4
        engine = replica.replica.engine
        assert engine.counts["num_preemptions"] > 0
        assert (engine.running, engine.waiting, engine.book.used) == (0, 0, 0)
        engine.book.check()


async def test_what_is_counted_is_what_was_generated():
    async with client_of() as (replica, client):
        bodies = [{**ASK, "max_tokens": 1 + n % 9, "n": 1 + n % 2} for n in range(100)]
        asks = [
            client.post("/v1/completions", body, **{"X-Request-Id": f"req-{number}"})
            for number, body in enumerate(bodies)
        ]
        answers = await asyncio.gather(*asks)
        logged = [(await client.get(f"/usage/req-{number}"))[1] for number in range(100)]
        assert all(one["finished"] for one in logged)
        assert [one["completion_tokens"] for one in logged] == [
            answer["usage"]["completion_tokens"] for _, answer in answers
        ]
        total = sum(one["completion_tokens"] for one in logged)
        assert total == replica.replica.engine.counts["generation_tokens"]


async def test_a_client_that_leaves_costs_no_further_tokens():
    machine = Machine(Plain(fixed_s=0.002), 1000)
    async with client_of(Setup(machine=machine)) as (replica, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.stream("/v1/completions", {**ASK, "max_tokens": 500},
                                    **{"X-Request-Id": "gone"})  # fmt: skip
        while replica.replica.engine.running:
            await client.get("/health")
        _, logged = await client.get("/usage/gone")
        assert logged["finished"]
        assert 0 < logged["completion_tokens"] < 500


async def test_an_answer_goes_on_at_another_replica():
    body = {**ASK, **USAGE, "return_token_ids": True, "max_tokens": 20}
    async with client_of() as (_, one), client_of() as (_, other):
        whole = await one.stream("/v1/completions", body)
        ids = [token for event in whole[:-2] for token in event["choices"][0].get("token_ids", ())]
        assert len(ids) == 20
        assert whole[-3]["choices"][0]["finish_reason"] == "length", "with the last id"
        rest = await other.stream("/v1/completions", {**body, "resume": {"token_ids": ids[:13]}})
        assert texts(rest) == texts(whole)[13:]
        assert rest[-2]["usage"] == whole[-2]["usage"]
        status, refused = await other.post(
            "/v1/completions", {**body, "resume": {"token_ids": ids}}
        )
        assert status == 400
        assert "complete" in refused["error"]["message"]


async def test_embeddings_are_unit_vectors_of_their_text():
    async with client_of() as (_, client):
        _, answer = await client.post("/v1/embeddings", {"model": "fake", "input": ["a", "b", "a"]})
        one, two, three = (entry["embedding"] for entry in answer["data"])
        assert one == three != two
        assert sum(value**2 for value in one) == pytest.approx(1)
        assert answer["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/v1/completions", {**ASK, "model": "other"}, 404, "does not exist"),
        ("/v1/completions", {**ASK, "prompt": ""}, 400, "empty"),
        ("/v1/completions", {**ASK, "logprobs": 1}, 400, "no logprobs"),
        ("/v1/completions", {**ASK, "max_tokens": 10**6}, 400, "maximum context length"),
        ("/v1/chat/completions", {"model": "fake", "messages": []}, 400, "messages"),
        ("/v1/nothing", {}, 404, "There is no"),
        ("/fake/faults", {"faults": ["explode"]}, 400, "no kind"),
        ("/fake/faults", {"fault": []}, 400, "unknown field"),
    ],
)
async def test_errors_have_openais_shape(path, body, status, why):
    async with client_of() as (_, client):
        got, answer = await client.post(path, body)
        assert got == status
        assert why in answer["error"]["message"]


async def test_unknown_fields_are_tolerated():
    async with client_of() as (_, client):
        status, _ = await client.post("/v1/completions", {**ASK, "nobody_knows": {"this": 1}})
        assert status == 200


async def test_it_speaks_of_its_load_by_the_names_it_is_told_to():
    async with client_of() as (_, client):
        await client.post("/v1/completions", ASK)
        _, text = await client.get("/metrics")
        for line in (
            'vllm:num_requests_running{model_name="fake"} 0',
            'vllm:generation_tokens_total{model_name="fake"} 8',
            'vllm:time_to_first_token_seconds_count{model_name="fake"} 1',
            'vllm:request_success_total{model_name="fake",finished_reason="length"} 1',
        ):
            assert line in text.splitlines()
        assert "vllm:kv_cache_usage_perc" in text
        await client.post("/fake/faults", {"metrics": "old"})
        _, text = await client.get("/metrics")
        assert "vllm:gpu_cache_usage_perc" in text
        assert "vllm:kv_cache_usage_perc" not in text
        await client.post("/fake/faults", {"metrics": "none"})
        assert (await client.get("/metrics"))[0] == 404


async def test_it_lists_its_adapters_and_what_it_was_told_to():
    async with client_of(replace(FAST, adapters=("sql",))) as (_, client):
        _, listed = await client.get("/v1/models")
        assert [(one["id"], one["parent"]) for one in listed["data"]] == [
            ("fake", None),
            ("sql", "fake"),
        ]
        assert (await client.post("/v1/completions", {**ASK, "model": "sql"}))[0] == 200
        await client.post("/fake/faults", {"models": ["wrong"], "adapters": []})
        _, listed = await client.get("/v1/models")
        assert [one["id"] for one in listed["data"]] == ["wrong"]


async def test_it_is_ready_once_it_has_loaded():
    async with client_of(replace(FAST, loading_s=0.05)) as (replica, client):
        assert (await client.get("/ready"))[0] == 503
        assert (await client.get("/health"))[0] == 200, "as servers do that load behind it"
        status, answer = await client.post("/v1/completions", ASK)
        assert (status, answer["error"]["code"]) == (503, "model_loading")
        await replica.ready()
        assert (await client.get("/ready"))[0] == 200


async def test_errors_are_told_as_often_as_they_were_ordered():
    async with client_of(FAST, "error,status=429,times=2") as (_, client):
        statuses = [(await client.post("/v1/completions", ASK))[0] for _ in range(3)]
        assert statuses == [429, 429, 200]
        probe = {"X-Request-Id": "probe-1"}
        await client.post("/fake/faults", {"faults": ["error,status=500"]})
        assert (await client.post("/v1/completions", ASK, **probe))[0] == 200
        assert (await client.get("/ready"))[0] == 200, "its health lies"
        assert (await client.post("/v1/completions", ASK))[0] == 500


async def test_a_cut_stream_delivered_no_more_than_is_logged():
    async with client_of(FAST, "cut,after=3") as (_, client):
        with pytest.raises(ClientError):
            await client.stream("/v1/completions", ASK, **{"X-Request-Id": "cut"})
        _, logged = await client.get("/usage/cut")
        assert logged["completion_tokens"] >= 3
        assert logged["finished"]


@pytest.mark.parametrize("kind", ["hang", "stall,after=2"])
async def test_silence_lasts_as_long_as_the_client_waits(kind):
    async with client_of(FAST, kind) as (_, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.post("/v1/completions", ASK)


async def test_a_stream_breaks_in_the_ways_it_was_told_to():
    async with client_of(FAST, "event,after=2,times=1", "malformed,after=2,times=1",
                         "no-usage,times=1", "split") as (_, client):  # fmt: skip
        told = await client.stream("/v1/completions", {**ASK, **USAGE})
        assert "error" in told[-1]
        broken = await client.stream("/v1/completions", {**ASK, **USAGE})
        assert isinstance(broken[-1], bytes)
        without = await client.stream("/v1/completions", {**ASK, **USAGE})
        assert without[-1] == "[DONE]"
        assert not without[-2].get("usage")
        split = await client.stream("/v1/completions", {**ASK, **USAGE})
        assert len(texts(split)) == 8


async def test_a_replica_that_dies_is_gone_for_everybody():
    async with client_of(FAST, "die,after=2") as (_, client):
        with pytest.raises(ClientError):
            await client.stream("/v1/completions", ASK)
        with pytest.raises(ClientError):
            await forever(client, "/health")


async def test_draining_ends_what_runs_and_takes_nothing_new():
    machine = Machine(Plain(fixed_s=0.005), 1000)
    async with client_of(Setup(machine=machine)) as (replica, client):
        running = asyncio.create_task(client.post("/v1/completions", ASK))
        while not replica.replica.engine.running:
            await client.get("/health")
        draining = asyncio.create_task(replica.drain())
        await asyncio.sleep(0)
        assert (await client.get("/ready"))[0] == 503
        assert (await client.post("/v1/completions", ASK))[0] == 503
        status, answer = await running
        assert (status, answer["usage"]["completion_tokens"]) == (200, 8)
        await draining


async def test_a_key_is_asked_for():
    async with client_of(replace(FAST, api_key="secret")) as (_, client):
        assert (await client.post("/v1/completions", ASK))[0] == 401
        key = {"Authorization": "Bearer secret"}
        assert (await client.post("/v1/completions", ASK, **key))[0] == 200
        assert (await client.get("/ready"))[0] == 200


async def test_tokens_can_be_had_and_spelled():
    async with client_of() as (_, client):
        _, told = await client.post("/tokenize", {"prompt": "eight by"})
        assert told["count"] == 2
        _, back = await client.post("/detokenize", {"tokens": told["tokens"]})
        assert back == {"prompt": "eight by"}
