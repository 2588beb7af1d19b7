"""The handlers of a fake replica that do not generate: health, models, metrics, tokens, faults."""

import time
from typing import Any

import msgspec
from aiohttp import web

import ridgeline
from ridgeline.errors import SpecError
from ridgeline.serving.fake.answers import encode
from ridgeline.serving.fake.faults import parse
from ridgeline.serving.fake.generating import BODY_BYTES
from ridgeline.serving.fake.replica import Replica
from ridgeline.serving.fake.setup import MetricNames
from ridgeline.serving.fake.tokens import chat, decode
from ridgeline.serving.fake.tokens import encode as tokens_of
from ridgeline.serving.http_guard import read_body
from ridgeline.serving.openai import ApiError, DetokenizeRequest, TokenizeRequest, read
from ridgeline.serving.policy.states import State

_BODY_S = 60.0


class Orders(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /fake/faults`: what is to go wrong from now on; what is left out stays as it is.

    `faults` replaces all faults. `ready` false makes the replica say that it loads, `healthy`
    false makes `/health` fail, `models` is what `/v1/models` lists.
    """

    faults: list[str] | None = None
    ready: bool | None = None
    healthy: bool | None = None
    models: list[str] | None = None
    adapters: list[str] | None = None
    metrics: MetricNames | None = None


class Pages:
    """The quick handlers of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._created = int(time.time())

    async def health(self, _request: web.Request) -> web.Response:
        """`GET /health`: 200 while the process lives, unless it was told otherwise."""
        return self._state(200 if self._replica.is_healthy else 503)

    async def ready(self, _request: web.Request) -> web.Response:
        """`GET /ready`: 200 while requests are taken."""
        return self._state(200 if self._replica.state == State.READY else 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """`GET /metrics`; 404 where the replica is told to have none."""
        if self._replica.metric_names == "none":
            raise web.HTTPNotFound
        replica = self._replica
        text = replica.metrics.text(replica.engine, replica.metric_names, replica.log.failures)
        return web.Response(
            body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    async def version(self, _request: web.Request) -> web.Response:
        """`GET /version`."""
        return _json({"version": ridgeline.__version__})

    async def models(self, _request: web.Request) -> web.Response:
        """`GET /v1/models`: the model and its adapters, or what it was told to list."""
        name = self._replica.setup.name
        listed = [name] if self._replica.models is None else self._replica.models
        cards = [self._card(one, None) for one in listed]
        cards += [self._card(one, name) for one in self._replica.adapters]
        return _json({"object": "list", "data": cards})

    async def tokenize(self, request: web.Request) -> web.Response:
        """`POST /tokenize`: the ids of a text or a conversation."""
        asked = read(await read_body(request, BODY_BYTES, _BODY_S), TokenizeRequest)
        if asked.messages is not None:
            texts = (
                (one.role, one.content if isinstance(one.content, str) else "")
                for one in asked.messages
            )
            ids = chat(texts)
        elif asked.prompt is not None:
            ids = tokens_of(asked.prompt)
        else:
            raise ApiError(400, "Missing required parameter: prompt (or messages).", param="prompt")
        longest = self._replica.engine.longest
        return _json({"count": len(ids), "max_model_len": longest, "tokens": ids})

    async def detokenize(self, request: web.Request) -> web.Response:
        """`POST /detokenize`: the text of ids."""
        asked = read(await read_body(request, BODY_BYTES, _BODY_S), DetokenizeRequest)
        return _json({"prompt": decode(asked.tokens)})

    async def usage(self, request: web.Request) -> web.Response:
        """`GET /usage/{id}`: what the durable log has of a request."""
        found = self._replica.log.find(request.match_info["id"])
        if found is None:
            raise ApiError(404, "No such request is in the usage log.", code="request_not_found")
        return _json(found)

    async def faults(self, _request: web.Request) -> web.Response:
        """`GET /fake/faults`: the faults that may still hit somebody."""
        now = [msgspec.to_builtins(_named(fault)) for fault in self._replica.faults.now]
        return _json({"faults": now})

    async def order(self, request: web.Request) -> web.Response:
        """`POST /fake/faults`: change what goes wrong."""
        orders = read(await read_body(request, BODY_BYTES, _BODY_S), Orders)
        replica = self._replica
        if orders.faults is not None:
            try:
                replica.faults.now = [parse(text) for text in orders.faults]
            except SpecError as error:
                raise ApiError(400, str(error), param="faults") from error
        if orders.ready is not None:
            replica.state = State.READY if orders.ready else State.LOADING
        if orders.healthy is not None:
            replica.is_healthy = orders.healthy
        if orders.models is not None:
            replica.models = tuple(orders.models)
        if orders.adapters is not None:
            replica.adapters = tuple(orders.adapters)
        if orders.metrics is not None:
            replica.metric_names = orders.metrics
        return await self.faults(request)

    def _state(self, status: int) -> web.Response:
        return _json({"status": str(self._replica.state)}, status)

    def _card(self, name: str, parent: str | None) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "ridgeline",
            "root": name,
            "parent": parent,
            "max_model_len": self._replica.engine.longest,
        }


def _named(fault: Any) -> dict[str, Any]:
    return {name: getattr(fault, name) for name in fault.__slots__}


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=status, content_type="application/json")
