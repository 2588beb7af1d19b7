"""A replica of embeddings through the unmodified `openai` client."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tiny_encoder import HIDDEN, LONGEST, WORDS, write_encoder

from ridgeline.errors import LaunchError, ModelError
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.embedding_endpoints import EmbeddingReplica
from ridgeline.serving.engine.embedding_front import EmbeddingFront, serve_embeddings
from ridgeline.serving.engine.replica import Limits
from ridgeline.serving.http_guard import Patience
from ridgeline.serving.usage_log import UsageLog


class Running:
    """A front in this loop, and what it has said."""

    def __init__(self, folder: Path, key: str | None) -> None:
        config = EngineConfig(model=folder, threads=1)
        self.said: list[dict[str, Any]] = []
        self.heard = asyncio.Event()
        self.replica = EmbeddingReplica("tiny", config, Limits(), UsageLog(None))
        self.front = EmbeddingFront(self.replica, key, Patience(), self._hear)

    def _hear(self, event: Any) -> None:
        self.said.append(dict(event))
        self.heard.set()

    async def until(self, name: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                self.heard.clear()
                for event in self.said:
                    if event["event"] == name:
                        return event
                await self.heard.wait()


@asynccontextmanager
async def running(folder: Path, key: str | None = None) -> AsyncIterator[Running]:
    told = Running(folder, key)
    task = asyncio.create_task(told.front.live("127.0.0.1", 0))
    try:
        yield told
    finally:
        told.front.leave()
        await asyncio.wait_for(task, 30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_encoder(tmp_path)


@pytest.fixture
async def tiny(folder: Path) -> AsyncIterator[Running]:
    async with running(folder) as told:
        await told.until("ready")
        yield told


@pytest.fixture
async def api(tiny: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    url = (await tiny.until("listening"))["url"]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        yield client


async def test_texts_and_their_ids_have_the_same_vectors(api: openai.AsyncOpenAI) -> None:
    texts = await api.embeddings.create(model="tiny", input=["the cat", "a mat"])
    ids = await api.embeddings.create(model="tiny", input=[[2, 4, 5, 3], [2, 10, 7, 3]])
    plain = await api.embeddings.create(model="tiny", input="the cat", encoding_format="float")
    vectors = [one.embedding for one in texts.data]
    assert [one.index for one in texts.data] == [0, 1]
    for row, one in enumerate(ids.data):
        assert one.embedding == pytest.approx(vectors[row], abs=1e-6)
    assert plain.data[0].embedding == pytest.approx(vectors[0], abs=1e-6)
    assert len(vectors[0]) == HIDDEN
    assert sum(number * number for number in vectors[0]) == pytest.approx(1)
    assert (texts.usage.prompt_tokens, plain.usage.total_tokens) == (8, 4)


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"input": "cat " * LONGEST}, "input", "context_length_exceeded"),
        ({"input": ["cat", "cat " * LONGEST]}, "input[1]", "context_length_exceeded"),
        ({"dimensions": HIDDEN // 2}, "dimensions", "unsupported_parameter"),
        ({"input": [len(WORDS)]}, "input", None),
        ({"input": []}, "input", None),
    ],
)
async def test_what_cannot_be_embedded_as_asked_is_refused(
    api: openai.AsyncOpenAI, more: dict[str, Any], param: str, code: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await api.embeddings.create(**{"model": "tiny", "input": "cat"} | more)
    assert (refused.value.param, refused.value.code) == (param, code)


async def test_the_full_width_may_be_asked_for_and_another_model_not(
    api: openai.AsyncOpenAI,
) -> None:
    await api.embeddings.create(model="tiny", input="cat", dimensions=HIDDEN)
    with pytest.raises(openai.NotFoundError):
        await api.embeddings.create(model="other", input="cat")


async def test_what_a_gateway_asks(tiny: Running, api: openai.AsyncOpenAI) -> None:
    told = await api.embeddings.with_raw_response.create(
        model="tiny", input="the cat", extra_headers={"X-Request-Id": "req-1~2"}
    )
    assert told.headers["X-Request-Id"] == "req-1~2"
    models = await api.models.list()
    assert models.data[0].id == "tiny"
    assert models.data[0].model_dump()["max_model_len"] == LONGEST
    root = (await tiny.until("listening"))["url"]
    async with aiohttp.ClientSession(root) as session:
        assert (await session.get("/ready")).status == 200
        assert (await session.get("/health")).status == 200
        assert (await session.post("/v1/chat/completions", json={})).status == 404
        metrics = await (await session.get("/metrics")).text()
        usage = await (await session.get("/usage/req-1~2")).json()
        assert (await session.get("/usage/req-0")).status == 404
    assert 'vllm:num_requests_waiting{model_name="tiny"} 0.0' in metrics
    assert 'vllm:prompt_tokens_total{model_name="tiny"} 4.0' in metrics
    assert usage == {
        "request_id": "req-1~2",
        "prompt_tokens": 4,
        "cached_tokens": 0,
        "completion_tokens": 0,
        "finished": True,
    }


async def test_a_key_is_asked_for(folder: Path) -> None:
    async with running(folder, key="k") as told:
        await told.until("ready")
        root = (await told.until("listening"))["url"]
        async with aiohttp.ClientSession(root) as session:
            assert (await session.get("/ready")).status == 200
            assert (await session.get("/v1/models")).status == 401
            right = {"Authorization": "Bearer k"}
            assert (await session.get("/v1/models", headers=right)).status == 200


async def test_it_listens_while_it_loads_and_says_so(folder: Path) -> None:
    async with running(folder) as told:
        root = (await told.until("listening"))["url"]
        assert told.said[-1]["event"] != "ready"
        async with aiohttp.ClientSession(root) as session:
            answers = [await session.get("/ready"), await session.get("/v1/models")]
            statuses = {answer.status for answer in answers}
        await told.until("ready")
        stages = [event["event"] for event in told.said]
    assert statuses <= {200, 503}  # a tiny model may be there at once
    assert stages == ["listening", "stage", "stage", "ready"]


async def test_leaving_refuses_what_is_new(tiny: Running, api: openai.AsyncOpenAI) -> None:
    await api.embeddings.create(model="tiny", input="cat")
    tiny.front.leave()

    async def until_refused() -> None:
        for _ in range(1000):
            await api.embeddings.create(model="tiny", input="cat")

    with pytest.raises((openai.InternalServerError, openai.APIConnectionError)):
        await until_refused()


async def test_a_model_that_is_torn_is_told(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    told = Running(folder, None)
    with pytest.raises(ModelError, match="tokenizer"):
        await told.front.live("127.0.0.1", 0)
    assert told.said[-1]["event"] == "failed"


async def test_a_taken_port_is_told(tiny: Running, folder: Path) -> None:
    port = int((await tiny.until("listening"))["url"].rpartition(":")[2])
    with pytest.raises(LaunchError, match="cannot listen"):
        await Running(folder, None).front.live("127.0.0.1", port)


def test_int8_is_refused(folder: Path) -> None:
    config = replace(EngineConfig(model=folder), dtype="int8")
    with pytest.raises(ModelError, match="float32"):
        serve_embeddings(config, name="tiny")


def test_ridgeline_serve_runs_it_until_sigterm(folder: Path) -> None:
    serve = [sys.executable, "-m", "ridgeline", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        ready = next(line for line in lines if line.startswith("ready: "))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "fp32" in ready
