"""A replica that does as it is told, and gateways in front of it, on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from aiohttp import web
from sqlalchemy import select

from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.store.tables import entries

WORDS = ("Pa", "ris", ".")


@dataclass
class FakeReplica:
    """An OpenAI-compatible server with no model. Its attributes say how it behaves."""

    models: list[str] = field(default_factory=lambda: ["m"])
    name: str = "fake"
    words: tuple[str, ...] = WORDS
    ready: int = 200  # the status of /ready
    has_ready: bool = True
    first_token: int = 200  # the status of the answer to the gateway's own first request
    probed: int = 0
    status: int = 200  # of answers to requests; other than 200 with `error`
    error: Any = None
    error_headers: dict[str, str] = field(default_factory=dict)
    takes_usage_option: bool = True
    before_s: float = 0.0  # to the first byte
    between_s: float = 0.0  # words
    dies_after: int | None = None  # so many words; 0: before the first byte
    says_done: bool = True
    wait: asyncio.Event | None = None  # holds every answer until it is set
    metrics: str | None = None
    seen: list[SimpleNamespace] = field(default_factory=list)
    running: int = 0
    cut: int = 0  # requests whose client left
    url: str = ""
    _runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> "FakeReplica":
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._generate)
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/tokenize", self._tokenize)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(status=self.ready if self.has_ready else 404)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=self.ready)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self.metrics or "", status=200 if self.metrics else 404)

    async def _tokenize(self, request: web.Request) -> web.Response:
        ids = list((await request.json())["prompt"].encode())
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": 100})

    async def _models(self, _: web.Request) -> web.Response:
        data = [{"id": m, "object": "model", "created": 1, "owned_by": "fake"} for m in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        self.running += 1
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.cut += 1
            raise
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        if request.headers.get("X-Request-Id", "").startswith("probe-"):
            self.probed += 1
            return web.json_response(self._whole(body), status=self.first_token)
        self.seen.append(SimpleNamespace(raw=raw, body=body, headers=request.headers.copy()))
        await asyncio.sleep(self.before_s)
        if self.wait is not None:
            await self.wait.wait()
        if self.dies_after == 0:
            self._die(request)
        options = body.get("stream_options")
        if options and not self.takes_usage_option:
            message = "Unrecognized request argument supplied: stream_options"
            return web.json_response({"error": {"message": message}}, status=400)
        if self.status != 200:
            return web.json_response(self.error, status=self.status, headers=self.error_headers)
        if not body.get("stream"):
            return web.json_response(self._whole(body))
        return await self._stream(request, body, bool(options and options.get("include_usage")))

    async def _stream(
        self, request: web.Request, body: dict[str, Any], usage: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self._event(response, self._chunk(body, {"role": "assistant", "content": ""}))
        for count, word in enumerate(self.words, 1):
            await asyncio.sleep(self.between_s)
            await self._event(response, self._chunk(body, {"content": word}))
            if count == self.dies_after:
                self._die(request)
        await self._event(response, self._chunk(body, {}, finish="stop"))
        if usage:
            await self._event(
                response, {**self._chunk(body, {}), "choices": [], "usage": self._usage()}
            )
        if self.says_done:
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _die(self, request: web.Request) -> None:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError("as told")

    async def _event(self, response: web.StreamResponse, data: dict[str, Any]) -> None:
        await response.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _chunk(
        self, body: dict[str, Any], delta: dict[str, str], finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        made = {"id": "c1", "object": "chat.completion.chunk", "created": 1}
        return {**made, "model": body["model"], "choices": [choice]}

    def _usage(self) -> dict[str, int]:
        said = len(self.words)
        return {"prompt_tokens": 7, "completion_tokens": said, "total_tokens": 7 + said}

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        text = "".join(self.words)
        said = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": said, "text": text, "finish_reason": "stop"}
        made = {"id": "c1", "object": "chat.completion", "created": 1, "served_by": self.name}
        return {**made, "model": body["model"], "choices": [choice], "usage": self._usage()}


@dataclass
class Tools:
    """What a test of the gateway needs."""

    replica: type[FakeReplica] = FakeReplica

    async def until(self, claim: Callable[[], bool], within_s: float = 5.0) -> None:
        """Wait until a claim is true; fail where it is not in time."""
        async with asyncio.timeout(within_s):
            while not claim():  # noqa: ASYNC110  (any claim; most have no event)
                await asyncio.sleep(0.002)

    @asynccontextmanager
    async def gateway(
        self, *replicas: FakeReplica, model: str = "*", ready: bool = True, **config: Any
    ) -> AsyncIterator[Gateway]:
        """A running gateway; the replicas are started, and ready unless told otherwise."""
        quick = {
            "port": 0,
            "probe_every_s": 0.02,
            "probe_starting_s": 0.01,
            "models": {"*": ModelSettings(rule="least-load")},  # whoever is free, whatever is warm
        }
        gateway = Gateway(GatewayConfig(**{**quick, **config}))
        try:
            for number, replica in enumerate(replicas):
                await replica.start()
                gateway.add_replica(ReplicaAddress(f"r{number}", replica.url, model))
            await gateway.start()
            if ready:
                await self.until(lambda: self.states(gateway) == ["ready"] * len(replicas))
            yield gateway
        finally:
            await gateway.close()
            for replica in replicas:
                await replica.stop()

    @asynccontextmanager
    async def client(self, gateway: Gateway, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
        """The unmodified client; it sends nothing twice, so that the gateway's doing is seen."""
        given = {"api_key": "none", "max_retries": 0, **options}
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", **given) as client:
            yield client

    def entries(self, gateway: Gateway) -> list[Any]:
        """What was charged so far."""
        with gateway.store.connect() as connection:
            return list(connection.execute(select(entries)))

    def states(self, gateway: Gateway) -> list[str]:
        return [one["state"] for one in gateway.status()["replicas"]]

    async def ask(self, client: openai.AsyncOpenAI, model: str = "m", **more: Any) -> Any:
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        return await client.chat.completions.create(model=model, messages=messages, **more)

    async def text(self, stream: Any) -> str:
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


@pytest.fixture
def tools() -> Tools:
    return Tools()
