"""Looks at replicas of several makes."""

import asyncio

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer, unused_port

from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.gateway.probe import Load, Probe, ProbeError, parse_load
from ridgeline.serving.policy.health import Sign

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a b"} 2.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.75
"""


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, Load(4, 2, 0.75)),
        (VLLM.replace("kv_cache_usage", "gpu_cache_usage"), Load(4, 2, 0.75)),
        ("sglang:num_running_reqs 5\nsglang:token_usage 0.1\n", Load(5, None, 0.1)),
        ("llamacpp:requests_processing 1\nllamacpp:requests_deferred 7\n", Load(1, 7, None)),
        ("vllm:kv_cache_usage_perc 1.5\n", Load(kv_usage=1.0)),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting x\n", Load()),
        ("", Load()),
        ("<html>no metrics here</html>", Load()),
    ],
    ids=["vllm", "old vllm", "sglang", "llama.cpp", "over 1", "NaN", "empty", "html"],
)
def test_load_is_read_under_every_name_it_has(text, load) -> None:
    assert parse_load(text) == load


async def look(paths: dict[str, int]) -> Sign:
    """The sign of a server that answers these paths with these statuses, and others with 404."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=paths.get(request.path, 404))

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, ClientSession() as session:
        return await Probe(session, ReplicaAddress("r", str(server.make_url(""))), 1.0).ready()


@pytest.mark.parametrize(
    ("paths", "sign"),
    [
        ({"/ready": 200, "/health": 500}, Sign.READY),
        ({"/ready": 503, "/health": 200}, Sign.NOT_READY),  # alive is not ready
        ({"/health": 200}, Sign.READY),
        ({"/health": 503, "/v1/models": 200}, Sign.NOT_READY),
        ({"/v1/models": 200}, Sign.READY),
        ({"/v1/models": 401}, Sign.NOT_READY),
        ({}, Sign.NOT_READY),
    ],
)
async def test_the_first_path_that_exists_decides(paths, sign) -> None:
    assert await look(paths) is sign


async def test_nobody_there_refuses_and_a_busy_one_is_silent() -> None:
    async def never(_: web.Request) -> web.Response:
        return await asyncio.get_running_loop().create_future()

    app = web.Application()
    app.router.add_get("/ready", never)
    nobody = ReplicaAddress("r", f"http://127.0.0.1:{unused_port()}")
    async with TestServer(app, handler_cancellation=True) as server, ClientSession() as session:
        busy = ReplicaAddress("r", str(server.make_url("")))
        assert await Probe(session, nobody, 1.0).ready() is Sign.REFUSED
        assert await Probe(session, busy, 0.05).ready() is Sign.SILENT


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"data": 7}', "[" * 100_000])
async def test_models_that_make_no_sense_are_an_error_of_the_replica(body) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server, ClientSession() as session:
        probe = Probe(session, ReplicaAddress("r", str(server.make_url(""))), 1.0)
        with pytest.raises(ProbeError):
            await probe.models()


def test_adapters_in_use_are_those_of_the_latest_report() -> None:
    name, row = "vllm:lora_requests_info", 'running_lora_adapters="{}",waiting_lora_adapters="{}"'
    old, new = row.format("old", ""), row.format("sql,chat", "de")
    text = f'{name}{{max_lora="4",{old}}} 1.0\n{name}{{max_lora="4",{new}}} 2.5e9\n'
    assert parse_load(text).adapters == {"sql", "chat", "de"}
    assert parse_load("vllm:num_requests_running 1").adapters == frozenset()


def test_the_size_of_the_cache_is_blocks_times_their_size() -> None:
    labels = 'block_size="32",engine="0",num_gpu_blocks="1000"'
    assert parse_load(f"vllm:cache_config_info{{{labels}}} 1.0").kv_tokens == 32_000
    assert parse_load("vllm:cache_config_info{} 1.0").kv_tokens is None
