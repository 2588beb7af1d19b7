"""The handlers of a replica that embeds texts. Its life is `embedding_front`'s."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from ridgeline.serving.engine.aside import Aside
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.door import door, sign
from ridgeline.serving.engine.embedding_batch import Batcher
from ridgeline.serving.engine.embedding_metrics import EmbeddingMetrics
from ridgeline.serving.engine.pages import (
    json_answer,
    model_card,
    model_list,
    state_answer,
    version,
)
from ridgeline.serving.engine.replica import Limits, State, request_id, shutting_down
from ridgeline.serving.http_guard import Patience, read_body
from ridgeline.serving.openai import ApiError, model_not_found, read
from ridgeline.serving.openai.embeddings import EmbeddingRequest, embedding_answer
from ridgeline.serving.usage_log import UsageLog

if TYPE_CHECKING:  # torch takes seconds to import, and the address listens before that
    from ridgeline.serving.engine.embedding_model import EmbeddingModel


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is known once a first text was really embedded."""

    model: "EmbeddingModel"
    batcher: Batcher


class EmbeddingReplica:
    """One embedding model, as the handlers see it."""

    def __init__(self, name: str, config: EngineConfig, limits: Limits, log: UsageLog) -> None:
        self.name = name
        self.config = config
        self.limits = limits
        self.log = log
        self.created = int(time.time())
        self.state = State.LOADING
        self.metrics = EmbeddingMetrics(
            name,
            lambda: self._loaded.batcher.running if self._loaded else 0,
            lambda: self._loaded.batcher.waiting if self._loaded else 0,
        )
        self._loaded: Loaded | None = None

    @property
    def loaded(self) -> Loaded:
        """The model. Raises ApiError 503 where it takes no requests (yet, or any more)."""
        if self.state == State.DRAINING:
            raise shutting_down()
        if self._loaded is None:
            message, later = "The model is being loaded.", {"Retry-After": "1"}
            raise ApiError(503, message, code="model_loading", headers=later)
        return self._loaded

    def fail_all(self, error: ApiError) -> None:
        """Every request that is open ends with this error."""
        if self._loaded is not None:
            self._loaded.batcher.fail_all(error)

    def ready(self, loaded: Loaded) -> None:
        """From now on requests are taken, unless the end has come before the beginning."""
        self._loaded = loaded
        if self.state == State.LOADING:
            self.state = State.READY


class Handlers:
    """The endpoints of one replica."""

    def __init__(self, replica: EmbeddingReplica, patience: Patience, aside: Aside) -> None:
        self._replica = replica
        self._patience = patience
        self._aside = aside

    async def embeddings(self, request: web.Request) -> web.Response:
        """`POST /v1/embeddings`. A client that leaves takes its texts out of the queue."""
        replica = self._replica
        loaded = replica.loaded
        body = await read_body(request, replica.limits.body_bytes, self._patience.body_s)
        asked, texts = await self._aside.run(lambda body: self._read(body, loaded), body)
        with replica.metrics.request():
            vectors = await loaded.batcher.embed(texts)
        tokens = sum(map(len, texts))
        replica.metrics.computed(tokens)
        replica.log.end(replica.log.begin(request_id(request), tokens))
        answer = embedding_answer(
            vectors, model=replica.name, prompt_tokens=tokens, base64_wanted=asked.base64
        )
        return json_answer(answer)

    def _read(self, body: bytes, loaded: Loaded) -> tuple[EmbeddingRequest, list[list[int]]]:
        """The request and its texts' ids. Raises ApiError for what cannot be embedded as asked."""
        asked = read(body, EmbeddingRequest)
        if asked.model != self._replica.name:
            raise model_not_found(asked.model, [self._replica.name])
        width = loaded.model.shape.hidden
        if asked.dimensions not in (None, width):
            raise ApiError(
                400,
                f"dimensions: this model's vectors have {width} numbers and are not made to be "
                f"shortened; leave it out or send {width}.",
                param="dimensions",
                code="unsupported_parameter",
            )
        texts = asked.texts()
        several = isinstance(asked.input, list) and len(texts) > 1
        names = [f"input[{place}]" if several else "input" for place in range(len(texts))]
        pairs = zip(texts, names, strict=True)
        return asked, [loaded.model.ids(text, param=name) for text, name in pairs]

    async def health(self, _request: web.Request) -> web.Response:
        """`GET /health`: 200 once the model is loaded, draining included."""
        return state_answer(self._replica.state, State.READY, State.DRAINING)

    async def ready(self, _request: web.Request) -> web.Response:
        """`GET /ready`: 200 while requests are taken; a text has been embedded by then."""
        return state_answer(self._replica.state, State.READY)

    async def metrics(self, _request: web.Request) -> web.Response:
        """`GET /metrics`: Prometheus' text."""
        text = self._replica.metrics.text()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def usage(self, request: web.Request) -> web.Response:
        """`GET /usage/{request id}`: the durable count of one request's tokens."""
        asked = request.match_info["id"]
        usage = self._replica.log.find(asked)
        if usage is None:
            raise ApiError(404, f"There is no usage of a request {asked} here.")
        return json_answer(usage)

    async def models(self, _request: web.Request) -> web.Response:
        """`GET /v1/models`: the one model, with the longest text it takes."""
        return model_list(self._card())

    async def model(self, request: web.Request) -> web.Response:
        """`GET /v1/models/{model}`."""
        name = request.match_info["model"]
        if name != self._replica.name:
            raise model_not_found(name, [self._replica.name])
        return json_answer(self._card())

    def _card(self) -> dict[str, object]:
        replica = self._replica
        return model_card(replica.name, replica.created, replica.loaded.model.shape.longest)


def make_app(
    replica: EmbeddingReplica, key: str | None, patience: Patience, aside: Aside
) -> web.Application:
    """The routes of one replica."""
    handlers = Handlers(replica, patience, aside)
    app = web.Application(middlewares=[door(key)])
    app.on_response_prepare.append(sign)
    app.add_routes(
        [
            web.post("/v1/embeddings", handlers.embeddings),
            web.get("/v1/models", handlers.models),
            web.get("/v1/models/{model:.+}", handlers.model),
            web.get("/health", handlers.health),
            web.get("/ready", handlers.ready),
            web.get("/metrics", handlers.metrics),
            web.get("/version", version),
            web.get("/usage/{id}", handlers.usage),
        ]
    )
    return app
