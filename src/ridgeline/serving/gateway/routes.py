"""The gateway's paths, who may use them, and its errors in OpenAI's shape."""

import hashlib
import hmac
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.proxy import Proxy, request_id
from ridgeline.serving.http_guard import error_response
from ridgeline.serving.openai import ApiError, model_not_found
from ridgeline.serving.policy.route import State

#: Paths that need no key even where one is set: they show nothing. Pages add their own.
OPEN_PATHS: Final = web.AppKey("open_paths", set[str])


def make_app(proxy: Proxy, fleet: Fleet, metrics: Metrics, api_key: str | None) -> web.Application:
    """The application, before anybody listens; pages may still be mounted on it."""
    app = web.Application(middlewares=[_in_openai_shape, _with_key(api_key)])
    app[OPEN_PATHS] = {"/health"}
    app.router.add_post("/v1/chat/completions", proxy.answer)
    app.router.add_post("/v1/completions", proxy.answer)
    app.router.add_post("/tokenize", proxy.forward)
    app.router.add_post("/detokenize", proxy.forward)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": fleet.models()})

    async def one_model(request: web.Request) -> web.Response:
        known = {entry["id"]: entry for entry in fleet.models()}
        name = request.match_info["model"]
        if name not in known:
            raise model_not_found(name, list(known))
        return web.json_response(known[name])

    async def health(_: web.Request) -> web.Response:
        ready = sum(one.view.state is State.READY for one in fleet.replicas)
        return web.json_response({"status": "ok", "replicas_ready": ready})

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": _PROMETHEUS})

    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{model:.+}", one_model)
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", scrape)
    return app


_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@web.middleware
async def _in_openai_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors that the gateway itself says, also for paths that do not exist."""
    try:
        response = await handler(request)
    except ApiError as error:
        response = error_response(error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        problem = f"{request.method} {request.path}: {error.reason}."
        response = error_response(ApiError(error.status, problem))
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = error.headers["Allow"]
    if not response.prepared:
        response.headers.setdefault("X-Request-Id", request_id(request))
    return response


def _with_key(api_key: str | None) -> Middleware:
    """Lets nobody in without the key, compared in constant time."""
    expected = _digest(api_key) if api_key is not None else b""

    @web.middleware
    async def with_key(request: web.Request, handler: Handler) -> web.StreamResponse:
        if api_key is not None and request.path not in request.app[OPEN_PATHS]:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(_digest(given), expected):
                raise ApiError(
                    401,
                    "This gateway needs an API key, as `Authorization: Bearer KEY`.",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return await handler(request)

    return with_key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.strip().encode(errors="surrogateescape")).digest()
