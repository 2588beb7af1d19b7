"""The gateway as the unmodified `openai` client sees it, before replicas that obey a script."""

import json

import openai
import pytest
from aiohttp import ClientSession

from ridgeline.errors import SpecError
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress


async def test_a_chat_passes_whole_and_streamed(tools) -> None:
    async with tools.gateway(tools.replica()) as gateway, tools.client(gateway) as client:
        whole = await tools.ask(client)
        assert whole.choices[0].message.content == "Paris."
        assert whole.usage.completion_tokens == 3
        assert await tools.text(await tools.ask(client, stream=True)) == "Paris."


async def test_a_completion_passes(tools) -> None:
    async with tools.gateway(tools.replica()) as gateway, tools.client(gateway) as client:
        answer = await client.completions.create(model="m", prompt="The capital of France is")
        assert answer.choices[0].text == "Paris."


async def test_fields_that_the_gateway_does_not_know_reach_the_replica_byte_for_byte(tools) -> None:
    replica = tools.replica()
    odd = b'{ "model":"m", "top_k": 1e1,"future":{"a":[1,2.50,"\\u00e9"]},"messages":[] }'
    async with tools.gateway(replica) as gateway, ClientSession() as client:
        async with client.post(f"{gateway.url}/v1/chat/completions", data=odd) as answer:
            assert answer.status == 200
        assert replica.seen[0].raw == odd
        streamed = odd.replace(b"{ ", b'{"stream":true, "stream_options":{"x":1},', 1)
        async with client.post(f"{gateway.url}/v1/chat/completions", data=streamed) as answer:
            assert answer.status == 200
            await answer.read()
        assert b'"top_k":1e1' in replica.seen[1].raw
        assert b'{"a":[1,2.50,"\\u00e9"]}' in replica.seen[1].raw
        assert replica.seen[1].body["stream_options"] == {"x": 1, "include_usage": True}


async def test_models_are_the_union_of_ready_replicas_and_say_who_serves_them(tools) -> None:
    replicas = tools.replica(), tools.replica(models=["m", "org/other"]), tools.replica()
    async with tools.gateway(*replicas) as gateway, tools.client(gateway) as client:
        listed = {one.id: one for one in (await client.models.list()).data}
        assert set(listed) == {"m", "org/other"}
        assert listed["m"].owned_by == "fake"
        assert listed["m"].replicas == ["r0", "r1", "r2"]
        assert (await client.models.retrieve("org/other")).replicas == ["r1"]
        replicas[1].ready = 503
        await tools.until(lambda: tools.states(gateway)[1] == "down")
        assert [one.id for one in (await client.models.list()).data] == ["m"]


async def test_an_unknown_model_is_404_with_the_known_ones(tools) -> None:
    async with tools.gateway(tools.replica()) as gateway, tools.client(gateway) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await tools.ask(client, model="gpt-99")
        assert caught.value.code == "model_not_found"
        assert "Models served: m" in caught.value.message
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-99")


async def test_while_no_replica_is_ready_it_is_503_with_retry_after(tools) -> None:
    replica = tools.replica(ready=503)
    async with (
        tools.gateway(replica, ready=False) as gateway,
        tools.client(gateway) as client,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            await tools.ask(client)
        assert caught.value.status_code == 503
        assert int(caught.value.response.headers["Retry-After"]) >= 1
        replica.ready = 200
        await tools.until(lambda: tools.states(gateway) == ["ready"])
        assert (await tools.ask(client)).choices[0].message.content == "Paris."


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'{"model": "m", "temperature": NaN}', "finite"),
        (b'{"model": "m", "x": "\xff\xfe"}', "UTF-8"),
        (b'{"messages": []}', "model"),
        (b'{"model": 7}', "model"),
        (b'{"model": "m", "stream": "yes"}', "stream"),
        (b'{"model": "m", "x": ' + b"[" * 100_000, "nested"),
    ],
    ids=["torn", "no object", "NaN", "not UTF-8", "no model", "model 7", "stream yes", "deep"],
)
async def test_a_body_that_makes_no_sense_is_400_and_bothers_no_replica(tools, body, says) -> None:
    replica = tools.replica()
    async with tools.gateway(replica) as gateway, ClientSession() as client:
        async with client.post(f"{gateway.url}/v1/chat/completions", data=body) as answer:
            assert answer.status == 400
            error = (await answer.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert says in error["message"]
        assert not replica.seen


async def test_a_body_above_the_limit_is_413_and_one_of_ten_megabytes_passes(tools) -> None:
    replica = tools.replica()
    async with (
        tools.gateway(replica, most_body_bytes=11 * 10**6) as gateway,
        tools.client(gateway) as client,
    ):
        answer = await client.completions.create(model="m", prompt="x" * 10**7)
        assert answer.choices[0].text == "Paris."
        assert len(replica.seen[0].body["prompt"]) == 10**7
        with pytest.raises(openai.APIStatusError) as caught:
            await client.completions.create(model="m", prompt="x" * 11 * 10**6)
        assert caught.value.status_code == 413


async def test_with_a_key_only_its_holders_enter_and_replicas_never_see_it(tools) -> None:
    replica = tools.replica()
    async with tools.gateway(replica, api_key="s3cret") as gateway:
        async with tools.client(gateway, api_key="s3cret") as client:
            await tools.ask(client)
        assert "Authorization" not in replica.seen[0].headers
        for wrong in ("Bearer s3cre", "Bearer s3cret!", "Basic s3cret", "x"):
            async with tools.client(gateway) as client:
                with pytest.raises(openai.AuthenticationError) as caught:
                    await client.models.list(extra_headers={"Authorization": wrong})
            assert caught.value.code == "invalid_api_key"
        async with ClientSession() as session:
            odd = {"Authorization": "Bearer \xe9\u2713"}  # bytes that are no ASCII
            async with session.get(f"{gateway.url}/v1/models", headers=odd) as answer:
                assert answer.status == 401
            for path, status in (("/health", 200), ("/metrics", 401), ("/v1/nothing", 401)):
                async with session.get(gateway.url + path) as answer:
                    assert answer.status == status


async def test_a_replica_gets_its_own_key(tools) -> None:
    replica = tools.replica()
    await replica.start()
    async with tools.gateway() as gateway, tools.client(gateway, api_key="mine") as client:
        gateway.add_replica(ReplicaAddress("keyed", f"{replica.url}/v1/", api_key="theirs"))
        await tools.until(lambda: tools.states(gateway) == ["ready"])
        await tools.ask(client)
        assert replica.seen[0].headers["Authorization"] == "Bearer theirs"
    await replica.stop()


async def test_request_ids_are_the_gateways_own_and_a_clients_is_kept_beside(tools) -> None:
    replica = tools.replica()
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        raw = client.chat.completions.with_raw_response
        ids = set()
        for given in ("mine-1", "mine-1", "bad id", None):
            headers = {"X-Request-Id": given} if given else {}
            answer = await raw.create(model="m", messages=[], extra_headers=headers)
            ids.add(answer.headers["X-Request-Id"])
            kept = answer.headers.get("X-Client-Request-Id")
            assert kept == (given if given == "mine-1" else None)
            assert replica.seen[-1].headers["X-Request-Id"] == answer.headers["X-Request-Id"]
            assert answer.headers["X-Ridgeline-Replica"] == "r0"
        stream = await raw.create(model="m", messages=[], stream=True)
        assert stream.headers["X-Request-Id"].startswith("req-")
        with pytest.raises(openai.NotFoundError) as caught:
            await tools.ask(client, model="none", extra_headers={"X-Request-Id": "mine-2"})
        assert caught.value.response.headers["X-Client-Request-Id"] == "mine-2"
        assert len(ids) == 4  # each is charged by its own


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/completions", 405), ("POST", "/x", 404)],
)
async def test_paths_that_do_not_exist_answer_in_openai_shape(tools, method, path, status) -> None:
    async with (
        tools.gateway() as gateway,
        ClientSession() as client,
        client.request(method, gateway.url + path) as answer,
    ):
        assert answer.status == status
        assert path in (await answer.json())["error"]["message"]


async def test_a_model_is_asked_for_by_the_clients_name_and_by_the_replicas_own(tools) -> None:
    replica = tools.replica(models=["meta-llama/Llama-3.1-8B"])
    async with tools.gateway(replica, model="chat") as gateway, tools.client(gateway) as client:
        assert [one.id for one in (await client.models.list()).data] == ["chat"]
        await tools.ask(client, model="chat")
        assert replica.seen[0].body["model"] == "meta-llama/Llama-3.1-8B"
        with pytest.raises(openai.NotFoundError):
            await tools.ask(client, model="meta-llama/Llama-3.1-8B")


async def test_a_replica_with_other_models_than_promised_never_gets_ready_and_says_why(
    tools,
) -> None:
    replica = tools.replica(models=["a", "b"])
    async with tools.gateway(replica, model="chat", ready=False) as gateway:
        said = "does not serve chat, but a, b"
        await tools.until(lambda: gateway.status()["replicas"][0]["reason"] == said)
        assert tools.states(gateway) == ["loading"]


async def test_metrics_count_requests_tokens_and_times(tools) -> None:
    replica = tools.replica(metrics="vllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0.25\n")
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        await tools.ask(client)
        await tools.text(await tools.ask(client, stream=True))
        with pytest.raises(openai.NotFoundError):
            await tools.ask(client, model="made-up-name")
        await tools.until(lambda: gateway.status()["requests"] == 3)
        async with ClientSession() as session, session.get(f"{gateway.url}/metrics") as answer:
            text = await answer.text()
        path = 'endpoint="/v1/chat/completions"'
        whose = 'model="m",tenant="default"'
        prefix = "ridgeline_gateway_"
        counted = f"{prefix}requests_total{{{path}"
        assert f'{counted},model="m",status="200",tenant="default"}} 2.0' in text
        assert f'{counted},model="",status="404",tenant="default"}} 1.0' in text
        assert f"{prefix}output_tokens_total{{{whose}}} 6.0" in text
        assert f"{prefix}prompt_tokens_total{{{whose}}} 14.0" in text
        assert f'{prefix}time_to_first_token_seconds_count{{model="m"}} 1.0' in text
        assert f'{prefix}request_seconds_count{{model="m"}} 2.0' in text
        assert f'{prefix}replica_up{{replica="r0"}} 1.0' in text
        assert "made-up-name" not in text


async def test_the_status_tells_what_the_console_shows(tools) -> None:
    report = "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"
    replica = tools.replica(metrics=report + 'vllm:kv_cache_usage_perc{engine="0"} 0.25\n')
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        await tools.text(await tools.ask(client, stream=True))
        await tools.until(lambda: gateway.status()["requests"] == 1)
        status = json.loads(json.dumps(gateway.status()))
        assert status["models"] == [
            {"id": "m", "replicas": 1, "ready": 1, "routing": "least-load"},
        ]
        (shown,) = status["replicas"]
        assert (shown["running"], shown["waiting"], shown["kv_usage"]) == (2, 1, 0.25)
        assert shown["requests"] == 1
        (row,) = status["recent"]
        assert (row["status"], row["replica"], row["output_tokens"]) == (200, "r0", 3)
        assert row["prompt_tokens"] == 7
        assert 0 < row["ttft_s"] <= row["e2e_s"]
        assert status["latency"]["ttft"]["count"] == 1
        assert status["output_tokens"] == 3


async def test_draining_lets_streams_end_refuses_new_ones_and_still_answers_looks(tools) -> None:
    replica = tools.replica(between_s=0.02)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        stream = await tools.ask(client, stream=True)
        assert await gateway.drain(grace_s=30)
        assert await tools.text(stream) == "Paris."
        with pytest.raises(openai.InternalServerError) as refused:
            await tools.ask(client, stream=True)
        assert (refused.value.status_code, refused.value.code) == (503, "shutting_down")
        assert [model.id async for model in client.models.list()] == ["m"]


async def test_an_answer_that_outlasts_the_drain_ends_with_an_error_event(tools) -> None:
    replica = tools.replica(words=("Pa", "ris"), between_s=60)
    async with tools.gateway(replica) as gateway, tools.client(gateway) as client:
        stream = await tools.ask(client, stream=True)
        await anext(aiter(stream))
        assert not await gateway.drain(grace_s=0.05)
        await gateway.hang_up()
        with pytest.raises(openai.APIError):
            await tools.text(stream)
        assert await gateway.drain(grace_s=30)


async def test_tokenizing_goes_to_a_replica_and_is_no_request_in_the_record(tools) -> None:
    async with tools.gateway(tools.replica()) as gateway, tools.client(gateway) as client:
        answer = await client.post(
            "../tokenize", body={"model": "m", "prompt": "abc"}, cast_to=object
        )
        assert answer == {"tokens": [97, 98, 99], "count": 3, "max_model_len": 100}
        assert gateway.status()["requests"] == 0


async def test_a_port_in_use_is_an_error_that_leaves_nothing_behind(tools) -> None:
    async with tools.gateway() as gateway:
        port = int(gateway.url.rpartition(":")[2])
        other = type(gateway)(GatewayConfig(port=port))
        with pytest.raises(OSError, match="address already in use"):
            await other.start()


async def test_wrong_settings_name_field_and_remedy(tools) -> None:
    with pytest.raises(SpecError, match="one of: prefix-sticky, least-load"):
        ModelSettings(rule="hash")
    with pytest.raises(SpecError, match="http://host:port"):
        ReplicaAddress("r", "localhost:8000")
    async with tools.gateway(tools.replica()) as gateway:
        with pytest.raises(SpecError, match="already is a replica"):
            gateway.add_replica(ReplicaAddress("r0", "http://127.0.0.1:1"))
