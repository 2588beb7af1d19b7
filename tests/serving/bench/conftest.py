"""A small OpenAI-compatible server with a known timing model, and runs in virtual time."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from ridgeline.serving.bench import strain
from ridgeline.serving.bench.drive import Driven
from ridgeline.serving.bench.goodput import Slo, goodput
from ridgeline.serving.bench.load import Bench, Watcher
from ridgeline.serving.bench.prompts import CANDIDATES, Vocabulary
from ridgeline.serving.bench.report import Report, Setting, report
from ridgeline.serving.bench.sample import Answer, Sample
from ridgeline.serving.bench.server import Served
from ridgeline.serving.bench.strain import Strain

TEMPLATE_TOKENS = 5


@dataclass
class Fake:
    """The server's behaviour; tests change its fields. Times in seconds.

    A prompt of n words has n tokens, and the chat template adds five. `slots` answers are made
    at once, others wait: a capacity of slots / answer time.
    """

    ttft_s: float = 0.01
    gap_s: float = 0.002
    slots: int = 1000
    models: tuple[str, ...] = ("fake-1",)
    context: int | None = None
    key: str | None = None
    loading: bool = False
    tokenizer: bool = True
    usage: bool = True
    tokens_a_piece: int = 1
    end_after: int | None = None
    fail_with: int | None = None
    fail_every: int = 1
    cut_after: int | None = None
    two_token_words: frozenset[str] = frozenset()
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    gate: asyncio.Semaphore | None = None

    def count(self, text: str) -> int:
        return sum(1 + (word in self.two_token_words) for word in text.split())

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        if "messages" in body:
            return TEMPLATE_TOKENS + sum(self.count(m["content"]) for m in body["messages"])
        return self.count(body["prompt"])

    def refused(self, request: web.Request) -> web.Response | None:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            error = {"error": {"message": "no such key", "type": "authentication_error"}}
            return web.json_response(error, status=401)
        return None

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        if self.loading:
            error = {"error": {"message": "the model is being loaded"}}
            return web.json_response(error, status=503)
        rows = [{"id": name, "max_model_len": self.context} for name in self.models]
        return self.refused(request) or web.json_response({"object": "list", "data": rows})

    async def tokenize(self, request: web.Request) -> web.StreamResponse:
        if not self.tokenizer:
            raise web.HTTPNotFound
        count = self.prompt_tokens(await request.json())
        return self.refused(request) or web.json_response({"count": count, "tokens": []})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if refused := self.refused(request):
            return refused
        if self.fail_with and len(self.bodies) % self.fail_every == 0:
            error = {"error": {"message": "as told", "type": "server_error"}}
            return web.json_response(error, status=self.fail_with)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if self.gate is None:
            self.gate = asyncio.Semaphore(self.slots)
        async with self.gate:
            await self.stream(body, response)
        return response

    async def stream(self, body: dict[str, Any], response: web.StreamResponse) -> None:
        chat = "messages" in body
        tokens = min(body["max_tokens"], self.end_after or body["max_tokens"])
        loop = asyncio.get_running_loop()
        due = loop.time() + self.ttft_s
        if chat:
            await send(response, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for place in range(0, tokens, self.tokens_a_piece):
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += self.gap_s * self.tokens_a_piece
            if self.cut_after is not None and place >= self.cut_after:
                return
            choice = {"delta": {"content": " word"}} if chat else {"text": " word"}
            await send(response, {"choices": [choice]})
        await send(response, {"choices": [{"delta": {}, "text": "", "finish_reason": "length"}]})
        if self.usage:
            usage = {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": tokens}
            await send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")


async def send(response: web.StreamResponse, said: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(said).encode() + b"\n\n")


@pytest.fixture
def fake() -> Iterator[Fake]:
    """The server, on a loopback port, in a thread with a loop of its own."""
    server = Fake()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(serve(server), loop).result(10)
    yield server
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own lateness is not judged: the machine of a test may be busy."""
    monkeypatch.setattr(strain, "LEAST_LATENESS_S", 1e9)
    monkeypatch.setattr(strain, "MOST_CPU_SHARE", 1e9)


async def serve(server: Fake) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_post("/tokenize", server.tokenize)
    app.router.add_post("/v1/chat/completions", server.generate)
    app.router.add_post("/v1/completions", server.generate)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        look = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self.now_s += timeout or 0.0
            return look(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def virtually() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine in virtual time: exact, and over at once."""

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(work)

    return run


@pytest.fixture
def made_report() -> Callable[..., Report]:
    """Makes the report of a run in which every answer of `good` met its objectives."""

    def make(
        load: float = 4.0,
        *,
        good: int = 95,
        total: int = 100,
        tokens_per_s: float = 500.0,
        ttft_s: float = 0.1,
        closed: bool = False,
        slo: Slo | None = PROMISED,
        **changed: Any,
    ) -> Report:
        tokens = 10
        duration_s = total * tokens / tokens_per_s
        setting = Setting(
            url="http://server",
            model="fake-1",
            api="chat",
            loop=f"{load:g} workers" if closed else f"{load:g} requests/s",
            closed=closed,
            load=load,
            sizes="prompt 128 + output 10 tokens",
            seed=7,
        )
        samples = tuple(
            made_sample(index, index / load, ttft_s if index < good else 9.0, tokens)
            for index in range(total)
        )
        driven = Driven(samples, Strain(0.2, 0.001, 0.002))
        made = report(driven, setting, slo)
        good_per_s = goodput(samples, slo or Slo(), duration_s)
        return replace(made, **({"duration_s": duration_s, "goodput": good_per_s} | changed))

    return make


PROMISED = Slo(ttft_s=0.5, tpot_s=0.05)


def made_sample(index: int, at_s: float, ttft_s: float, tokens: int) -> Sample:
    times = tuple(at_s + ttft_s + 0.01 * place for place in range(tokens))
    answer = Answer(at_s, times[-1], times, 128, tokens)
    return Sample(index, at_s, 128, tokens, answer)


class Queue:
    """A server of one queue: `slots` answers at once, each `took_s` after 20 ms of first token."""

    url = "http://server"

    def __init__(self, *, slots: int, took_s: float = 1.0) -> None:
        self.free, self.took_s = asyncio.Semaphore(slots), took_s
        self.prompts: list[str] = []

    async def send(self, prompt: str, output_tokens: int, origin_s: float) -> Answer:
        self.prompts.append(prompt)
        now = asyncio.get_running_loop().time
        sent_s = now() - origin_s
        async with self.free:
            begun_s = now() - origin_s
            await asyncio.sleep(self.took_s)
        gap_s = (self.took_s - 0.02) / max(1, output_tokens - 1)
        times = tuple(begun_s + 0.02 + gap_s * place for place in range(output_tokens))
        return Answer(sent_s, now() - origin_s, times, len(prompt.split()), output_tokens)


QUIET = Watcher(lambda plan, text: None, lambda sample: None)


@pytest.fixture
def queue_bench() -> Callable[..., Bench]:
    """Makes a bench of one `Queue` in virtual time; its prompts are words of one token each."""

    def make(*, slots: int = 4, context: int | None = None) -> Bench:
        vocabulary = Vocabulary(CANDIDATES, 1, exact=True)
        now = asyncio.get_running_loop().time
        queue: Any = Queue(slots=slots)
        return Bench(queue, Served("m", context), vocabulary, asyncio.Event(), QUIET, now)

    return make
