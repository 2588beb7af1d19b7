"""A replica: the HTTP front, which owns the tokenizer, before an engine process, which owns torch.

`ridgeline serve` calls `serve`; docs/decisions/0009-replica-processes.md says why two processes.
The front listens at once, answers 503 until the engine has generated a token, drains on SIGTERM,
and ends with its engine, saying so.

    clients ══HTTP══ front (asyncio: JSON, SSE, tokenizer) ══socket══ engine (torch)
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from ridgeline import event_loop
from ridgeline.errors import ModelError
from ridgeline.launch.start_clock import PROCESS, stage_event
from ridgeline.serving.engine.aside import Aside
from ridgeline.serving.engine.asking import Bounds
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.door import door, sign
from ridgeline.serving.engine.endpoints import Endpoints
from ridgeline.serving.engine.link import EngineLink, EngineProcess
from ridgeline.serving.engine.messages import Failed, Stage
from ridgeline.serving.engine.model_files import ModelFiles, open_model
from ridgeline.serving.engine.pages import version
from ridgeline.serving.engine.prompts import Prompts, longest_token_bytes
from ridgeline.serving.engine.replica import Limits, Loaded, Replica, State, shutting_down
from ridgeline.serving.engine.status import Status
from ridgeline.serving.engine.template import ChatTemplate
from ridgeline.serving.http_guard import GuardedServer, Patience
from ridgeline.serving.usage_log import UsageLog

#: After the engine has died the front stays this long to say so to whoever asks.
_LAST_WORDS_S = 2.0
#: How long an answer that was just ended may take to reach its client, and the engine to leave.
_PARTING_S = 2.0

Said = Callable[[Mapping[str, Any]], None]


def serve(
    engine: EngineProcess,
    config: EngineConfig,
    *,
    name: str,
    host: str = "127.0.0.1",
    port: int = 8001,
    api_key: str | None = None,
    limits: Limits | None = None,
    patience: Patience | None = None,
    log: UsageLog | None = None,
    said: Said = lambda _event: None,
) -> int:
    """Serve one model until SIGTERM or Ctrl-C, then drain; returns the exit status 0.

    `engine` runs with the same `config`. Whoever calls has started it before importing this file,
    since the engine's start is the longest wait; it is ended here in every case. `log` is
    where each request's tokens are counted; None counts them nowhere.
    `said` hears of each stage as an event: "listening" (with `url`), "stage" (with `stage`, and
    what the one that `ended` took), "ready" (with what the engine told of itself, and all
    `stages_s`), "failed" (problem, where, remedy).

    Raises ModelError where the model cannot be served, LaunchError where the address is taken
    or the engine dies.
    """

    async def main() -> None:
        replica = Replica(name, config, limits or Limits(), api_key, log)
        front = Front(replica, patience or Patience(), said)
        event_loop.on_signals(front.leave)
        await front.live(host, port, engine)

    event_loop.run(main())
    return 0


class Front:
    """One replica's life, from listening to gone."""

    def __init__(self, replica: Replica, patience: Patience, said: Said) -> None:
        self._replica = replica
        self._said = said
        self._aside = Aside()
        self._server = GuardedServer(make_app(replica, patience, self._aside), patience)
        self._leave = asyncio.Event()
        self._at_once = asyncio.Event()
        self._before_s = 0.0

    def leave(self) -> None:
        """Drain and go; asked a second time, go without draining."""
        if self._leave.is_set():
            self._at_once.set()
        self._leave.set()

    async def live(self, host: str, port: int, engine: EngineProcess) -> None:
        """Until asked to leave. Raises ModelError or LaunchError where that was not the end."""
        self._before_s = engine.before_s
        try:
            link = await engine.connect(self._replica.log, self._begun)
            try:
                self._said({"event": "listening", "url": await self._server.listen(host, port)})
                drained = await self._serve(link)
            finally:
                link.hang_up()
            if not drained:
                await engine.end(_PARTING_S)
                raise engine.death()
        finally:
            await self._server.stop(_PARTING_S)
            self._aside.close()
            await engine.end(_PARTING_S)

    async def _serve(self, link: EngineLink) -> bool:
        """From loading to drained; False when the engine died before that."""
        serving = asyncio.create_task(self._until_lost(link))
        await _first(serving, self._leave.wait())
        if serving.done():
            serving.result()
        else:
            serving.cancel()
            await self._drain(link)
        if link.lost.is_set():
            return False
        link.stop()
        return True

    async def _until_lost(self, link: EngineLink) -> None:
        """Serve for as long as the engine lives, and a moment longer."""
        if await self._start(link):
            await link.lost.wait()
            self._replica.state = State.LOST
            await asyncio.sleep(_LAST_WORDS_S)

    def _begun(self, turn: Stage) -> None:
        """A stage of the engine's start; its process is later than ours by what we did before."""
        before_s = self._before_s if turn.ended == PROCESS else 0.0
        self._said(stage_event(turn.stage, turn.ended, turn.spent_s + before_s))

    async def _start(self, link: EngineLink) -> bool:
        """Load the tokenizer while the engine loads the weights; False if the engine dies."""
        config = self._replica.config
        engine_started_s: list[float] = []
        link.started.add_done_callback(lambda _: engine_started_s.append(time.monotonic()))
        try:
            files, template, longest_bytes = await asyncio.to_thread(_open, config)
            outcome = await link.started
            if isinstance(outcome, Failed):
                raise ModelError(outcome.problem, where=outcome.where, remedy=outcome.remedy)
        except ModelError as error:
            told = {"problem": error.problem, "where": error.where, "remedy": error.remedy}
            self._said({"event": "failed", **told})
            raise
        if outcome is None:
            return False
        eos_ids = frozenset(files.architecture.eos_ids)
        bounds = Bounds(outcome.max_model_len, outcome.vocab_size, eos_ids)
        prompts = Prompts(files.tokenizer, template, bounds, longest_bytes)
        # What is loaded stays: no collection between tokens has to look at it again.
        gc.collect()
        gc.freeze()
        self._replica.ready(Loaded(link, outcome, prompts, bounds))
        stages_s = dict(outcome.stages_s)
        stages_s[PROCESS] = stages_s.get(PROCESS, 0.0) + self._before_s
        # What we did after the engine's first token: nothing, unless the tokenizer took longer.
        stages_s["front"] = time.monotonic() - engine_started_s[0]
        self._said({**msgspec.to_builtins(outcome), "event": "ready", "stages_s": stages_s})
        return True

    async def _drain(self, link: EngineLink) -> None:
        """Let what runs finish, within the grace; what does not is told so."""
        self._replica.state = State.DRAINING
        grace = asyncio.sleep(self._replica.limits.grace_s)
        await _first(self._replica.quiet.wait(), self._at_once.wait(), link.lost.wait(), grace)
        link.fail_all(shutting_down())


def make_app(replica: Replica, patience: Patience, aside: Aside) -> web.Application:
    """The routes of one replica."""
    endpoints = Endpoints(replica, patience, aside)
    status = Status(replica, patience, aside)
    app = web.Application(middlewares=[door(replica.key)])
    app.on_response_prepare.append(sign)
    app.add_routes(
        [
            web.post("/v1/chat/completions", endpoints.chat),
            web.post("/v1/completions", endpoints.completions),
            web.get("/v1/models", status.models),
            web.get("/v1/models/{model:.+}", status.model),
            web.get("/health", status.health),
            web.get("/ready", status.ready),
            web.get("/metrics", status.metrics),
            web.get("/version", version),
            web.get("/usage/{id}", status.usage),
            web.post("/tokenize", status.tokenize),
            web.post("/detokenize", status.detokenize),
        ]
    )
    return app


def _open(config: EngineConfig) -> tuple[ModelFiles, ChatTemplate, int]:
    """The parts of a model that the front needs, and its longest token; takes a second."""
    files = open_model(config.model, cache_dir=config.cache_dir)
    template = ChatTemplate(
        files.chat_template, bos_token=files.bos_token, eos_token=files.eos_token
    )
    return files, template, longest_token_bytes(files.tokenizer)


async def _first(*awaited: Awaitable[object]) -> None:
    """Until one of them is done; coroutines that are not are cancelled, tasks are left alone."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, one in zip(tasks, awaited, strict=True):
            if task is not one:
                task.cancel()
