"""The gateway's paths, who may use them, and its errors in OpenAI's shape."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ridgeline.serving.gateway.admission import visible
from ridgeline.serving.gateway.callers import Caller, Callers
from ridgeline.serving.gateway.dialects import DIALECTS
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.ids import new_id
from ridgeline.serving.gateway.proxy import CALLER, Proxy
from ridgeline.serving.http_guard import error_response
from ridgeline.serving.openai import ApiError, model_not_found
from ridgeline.serving.policy.states import State

#: Paths that need no key even where one is set: they show nothing. Pages add their own.
OPEN_PATHS: Final = web.AppKey("open_paths", set[str])
#: Paths that show everybody's traffic: no tenant's key opens them. Pages add their own.
WATCHERS_PATHS: Final = web.AppKey("watchers_paths", set[str])

_ANSWERED = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_FORWARDED = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    proxy: Proxy, fleet: Fleet, scrape: Callable[[], Awaitable[bytes]], callers: Callers
) -> web.Application:
    """The application, before anybody listens; pages may still be mounted on it."""
    app = web.Application(middlewares=[_in_their_shape, _with_caller(callers)])
    app[OPEN_PATHS] = {"/health"}
    app[WATCHERS_PATHS] = {"/metrics"}
    for path in (*_ANSWERED, *(path for path in DIALECTS if path not in _FORWARDED)):
        app.router.add_post(path, proxy.answer)
    for path in _FORWARDED:
        app.router.add_post(path, proxy.forward)

    async def models(request: web.Request) -> web.Response:
        known = visible(fleet.models(), request[CALLER])
        return web.json_response({"object": "list", "data": known})

    async def one_model(request: web.Request) -> web.Response:
        known = {entry["id"]: entry for entry in visible(fleet.models(), request[CALLER])}
        name = request.match_info["model"]
        if name not in known:
            raise model_not_found(name, list(known))
        return web.json_response(known[name])

    async def health(_: web.Request) -> web.Response:
        ready = sum(one.view.state is State.READY for one in fleet.replicas)
        return web.json_response({"status": "ok", "replicas_ready": ready})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await scrape(), headers={"Content-Type": _PROMETHEUS})

    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{model:.+}", one_model)
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    return app


@web.middleware
async def _in_their_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors that the gateway itself says, also for paths that do not exist."""
    try:
        response = await handler(request)
    except ApiError as error:
        response = _shaped(request.path, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        problem = f"{request.method} {request.path}: {error.reason}."
        response = _shaped(request.path, ApiError(error.status, problem))
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = error.headers["Allow"]
    if not response.prepared and "X-Request-Id" not in response.headers:
        response.headers["X-Request-Id"] = new_id()
    return response


def _shaped(path: str, error: ApiError) -> web.Response:
    if path not in DIALECTS:
        return error_response(error)
    status, body = DIALECTS[path].error(error)
    headers = dict(error.headers)
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def _may_watch(caller: Caller) -> bool:
    """Whoever has the platform's own key, or needs none, sees all; a tenant's users do not."""
    return caller.role != "user" or caller.key_id in ("", "platform-user")


def _with_caller(callers: Callers) -> Middleware:
    """Lets nobody in without a key that is known, and each only where they may."""

    @web.middleware
    async def with_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
        path, app = request.path, request.app
        if path in app[OPEN_PATHS] or path.startswith("/admin/") or path == "/v1/usage":
            return await handler(request)  # the admin API looks at keys itself
        dialect = DIALECTS.get(path)
        given = (
            request.headers.get("Authorization", "")
            if dialect is None
            else dialect.authorization(request.headers)
        )
        request[CALLER] = caller = await callers.authenticate(given)
        if path in app[WATCHERS_PATHS] and not _may_watch(caller):
            raise ApiError(
                403,
                "This shows every tenant's traffic: it needs a key of role viewer or admin.",
                code="insufficient_permissions",
            )
        return await handler(request)

    return with_caller
