"""A replica that embeds texts: one process, its model computing in a thread beside the HTTP loop.

No second process as for models that generate: there is no stream of tokens that a busy
interpreter could delay, and torch lets go of the interpreter while it computes
(docs/decisions/0021-dialects.md). `ridgeline serve` calls `serve_embeddings`.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ridgeline import event_loop
from ridgeline.errors import ModelError
from ridgeline.launch.start_clock import StartClock, process_began_s, stage_event
from ridgeline.serving.engine.aside import Aside
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.embedding_batch import Batcher
from ridgeline.serving.engine.embedding_endpoints import EmbeddingReplica, Loaded, make_app
from ridgeline.serving.engine.environment import engine_environment
from ridgeline.serving.engine.read_ahead import read_ahead
from ridgeline.serving.engine.replica import Limits, State, shutting_down
from ridgeline.serving.http_guard import GuardedServer, Patience
from ridgeline.serving.usage_log import UsageLog

if TYPE_CHECKING:  # torch takes seconds to import, and the address listens before that
    from ridgeline.serving.engine.embedding_model import EmbeddingModel

#: How long an answer that was just ended may take to reach its client.
_PARTING_S = 2.0

Said = Callable[[Mapping[str, Any]], None]


def serve_embeddings(
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
    """Serve one embedding model until SIGTERM or Ctrl-C, then drain; returns the exit status 0.

    Of `config`, `model`, `threads`, `max_model_len` and `max_batched_tokens` (a batch's, padding
    counted) matter here: there is no cache, and everything is float32. `said` hears what
    `front.serve` says. Raises ModelError where the model cannot be served, LaunchError where the
    address is taken.
    """
    if config.dtype == "int8":
        raise ModelError(
            "an embedding model computes in float32 only", where="dtype", remedy="leave dtype out"
        )

    began_s = process_began_s(os.getpid())

    async def main() -> None:
        replica = EmbeddingReplica(name, config, limits or Limits(), log or UsageLog(None))
        front = EmbeddingFront(replica, api_key, patience or Patience(), said, began_s)
        event_loop.on_signals(front.leave)
        await front.live(host, port)

    event_loop.run(main())
    return 0


class EmbeddingFront:
    """One replica's life, from listening to gone."""

    def __init__(
        self,
        replica: EmbeddingReplica,
        key: str | None,
        patience: Patience,
        said: Said,
        began_s: float | None = None,
    ) -> None:
        """`began_s`: since when it starts; None for now."""
        self._replica = replica
        self._said = said
        self._clock = StartClock(
            time.monotonic() if began_s is None else began_s,
            lambda *turn: said(stage_event(*turn)),
        )
        self._aside = Aside()
        self._server = GuardedServer(make_app(replica, key, patience, self._aside), patience)
        self._leave = asyncio.Event()
        self._at_once = asyncio.Event()

    def leave(self) -> None:
        """Drain and go; asked a second time, go without draining."""
        if self._leave.is_set():
            self._at_once.set()
        self._leave.set()

    async def live(self, host: str, port: int) -> None:
        """Until asked to leave. Raises ModelError or LaunchError where that was not the end."""
        serving: asyncio.Task[None] | None = None
        try:
            self._said({"event": "listening", "url": await self._server.listen(host, port)})
            serving = asyncio.create_task(self._serve())
            await self._either(serving, self._leave)
            if serving.done():
                serving.result()
            await self._drain()
        finally:
            await self._server.stop(0)
            self._aside.close()
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def _drain(self) -> None:
        """Let what runs finish, within the grace; what does not is told so."""
        self._replica.state = State.DRAINING
        draining = asyncio.create_task(self._server.drain(self._replica.limits.grace_s))
        await self._either(draining, self._at_once)
        draining.cancel()
        self._replica.fail_all(shutting_down())
        await self._server.drain(_PARTING_S)

    async def _serve(self) -> None:
        """Load, then compute for as long as nobody says otherwise."""
        try:
            model = await self._load()
        except ModelError as error:
            told = {"problem": error.problem, "where": error.where, "remedy": error.remedy}
            self._said({"event": "failed", **told})
            raise
        batcher = Batcher(model.vectors, self._replica.config.max_batched_tokens)
        self._replica.ready(Loaded(model, batcher))
        about = {"max_model_len": model.shape.longest, "vocab_size": model.shape.vocab}
        how = {"dtype": "fp32", "threads": model.threads, "kernels": "torch"}
        stages_s = {**self._clock.spent_s, **model.stages_s}
        self._said({"event": "ready", **about, **how, "stages_s": stages_s})
        await batcher.run()

    async def _load(self) -> "EmbeddingModel":
        """Torch, then the weights; each in a thread."""
        config = self._replica.config
        self._clock.begin("import")
        read_ahead(config)
        load = await asyncio.to_thread(_imported)
        self._clock.begin("load")
        return await asyncio.to_thread(
            load,
            config.model,
            longest=config.max_model_len,
            threads=config.threads,
            began_s=time.monotonic(),
        )

    async def _either(self, task: asyncio.Task[Any], event: asyncio.Event) -> None:
        """Until the task is done or the event is set."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def _imported() -> type["EmbeddingModel"]:
    os.environ.update(engine_environment())  # torch's OpenMP reads it when it is first imported
    from ridgeline.serving.engine.embedding_model import EmbeddingModel

    return EmbeddingModel
