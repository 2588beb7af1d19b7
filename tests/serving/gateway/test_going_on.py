"""How a cut stream goes on: which may, what the next replica is told, and a vLLM that does it."""

import asyncio
import json

import openai
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.calls import peek
from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.going_on import Way, body_to_go_on, way_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def way(owner: str, path: str, **fields) -> Way | None:
    body = json.dumps({"model": "m", "stream": True, **fields}).encode()
    return way_of(owner, path, peek(body), body)


@pytest.mark.parametrize(
    ("owner", "path", "fields", "expected"),
    [
        ("ridgeline", CHAT, {"messages": []}, Way.RESUME),
        ("ridgeline", COMPLETIONS, {"prompt": "x", "stop": ["a"], "temperature": 1}, Way.RESUME),
        ("ridgeline", CHAT, {"messages": [], "n": 2}, None),
        ("ridgeline", CHAT, {"messages": [], "logprobs": True}, None),
        ("ridgeline", CHAT, {"messages": [], "stream": False}, None),
        ("vllm", COMPLETIONS, {"prompt": "x", "temperature": 0}, Way.PROMPT),
        ("vllm", COMPLETIONS, {"prompt": [1, 2], "temperature": 0}, Way.PROMPT),
        ("vllm", COMPLETIONS, {"prompt": ["x"], "temperature": 0}, None),
        ("vllm", COMPLETIONS, {"prompt": [[1]], "temperature": 0}, None),
        ("vllm", COMPLETIONS, {"prompt": "x"}, None),  # its chance cannot be set anew
        ("vllm", COMPLETIONS, {"prompt": "x", "temperature": 0, "stop": "a"}, None),
        ("vllm", COMPLETIONS, {"prompt": "x", "temperature": 0, "presence_penalty": 1}, None),
        ("vllm", CHAT, {"messages": [], "temperature": 0}, None),
        ("sglang", COMPLETIONS, {"prompt": "x", "temperature": 0}, None),
    ],
)
def test_only_what_is_exact_goes_on(owner, path, fields, expected) -> None:
    assert way(owner, path, **fields) is expected


@given(st.lists(st.integers(0, 9), min_size=1), st.lists(st.integers(0, 9), min_size=1))
def test_the_next_one_is_told_all_ids_and_what_is_left(prompt_ids, ids) -> None:
    body = json.dumps({"model": "m", "prompt": "x", "max_tokens": 20, "odd": 1.50}).encode()
    resumed = json.loads(body_to_go_on(body, Way.RESUME, prompt_ids, ids))
    assert resumed["resume"] == {"token_ids": ids}
    assert (resumed["prompt"], resumed["max_tokens"], resumed["odd"]) == ("x", 20, 1.5)
    told = body_to_go_on(body, Way.PROMPT, prompt_ids, ids)
    if len(ids) >= 20:
        assert told is None
    else:
        assert json.loads(told)["prompt"] == prompt_ids + ids
        assert json.loads(told)["max_tokens"] == 20 - len(ids)


class TinyVllm:
    """Plain completions as vLLM streams them, of a "model" whose next id follows from the last."""

    def __init__(self, deaths: list[int]) -> None:
        self.deaths = deaths  # of whoever is asked next: after how many tokens
        self.prompts: list[object] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", _ok)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post(COMPLETIONS, self._complete)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        data = [{"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]
        return web.json_response({"data": data})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            return web.json_response({"choices": [{"text": "x"}], "usage": {}})
        self.prompts.append(body["prompt"])
        ids = list(body["prompt"].encode()) if isinstance(body["prompt"], str) else body["prompt"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        last, most = ids[-1], body["max_tokens"]
        for number in range(most):
            if self.deaths and number >= self.deaths[0]:
                self.deaths.pop()
                request.transport.abort()
                raise ConnectionResetError
            last = (last * 7 + 3) % 97
            choice = {"index": 0, "text": f" {last}", "token_ids": [last]}
            choice["prompt_token_ids"] = None if number else ids
            choice["finish_reason"] = "length" if number == most - 1 else None
            await _event(response, {"id": "c", "choices": [choice]})
            await asyncio.sleep(0)
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": most,
            "total_tokens": len(ids) + most,
        }
        if (body.get("stream_options") or {}).get("include_usage"):
            await _event(response, {"id": "c", "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


async def _ok(_: web.Request) -> web.Response:
    return web.Response()


async def _event(response: web.StreamResponse, data: object) -> None:
    await response.write(b"data: " + json.dumps(data).encode() + b"\n\n")


async def test_a_vllm_completion_goes_on_as_a_longer_prompt(tools) -> None:
    deaths: list[int] = []
    servers, runners = [TinyVllm(deaths), TinyVllm(deaths)], []
    gateway = Gateway(GatewayConfig(port=0, probe_every_s=5.0, probe_starting_s=0.01))
    await gateway.start()
    try:
        for number, server in enumerate(servers):
            runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.01)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            runners.append(runner)
            port = runner.addresses[0][1]
            gateway.add_replica(ReplicaAddress(f"r{number}", f"http://127.0.0.1:{port}"))
        await tools.until(lambda: tools.states(gateway) == ["ready", "ready"])
        async with tools.client(gateway) as client:
            whole, usage = await _complete(client)
            deaths.append(5)
            again, usage_again = await _complete(client)
            assert not deaths
            assert sum(isinstance(prompt, list) for one in servers for prompt in one.prompts) == 1
            assert again == whole
            assert usage_again == usage == (5, 30)
    finally:
        await gateway.close()
        for runner in runners:
            await runner.cleanup()


async def _complete(client: openai.AsyncOpenAI) -> tuple[str, tuple[int, int]]:
    stream = await client.completions.create(
        model="m",
        prompt="hello",
        max_tokens=30,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", (0, 0)
    async for chunk in stream:
        assert "token_ids" not in chunk.to_json()
        text += "".join(choice.text for choice in chunk.choices)
        if chunk.usage is not None:
            usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
    return text, usage
