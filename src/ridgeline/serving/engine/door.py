"""The way into a replica: who may enter, and what an error looks like. Used by both fronts."""

import hmac

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ridgeline.serving.engine.replica import request_id
from ridgeline.serving.http_guard import error_response
from ridgeline.serving.openai import ApiError

_OPEN_PATHS = frozenset({"/health", "/ready", "/metrics", "/version"})


def door(key: str | None) -> Middleware:
    """Every request passes: it is asked for its key, and errors get OpenAI's shape."""

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            _check_key(request, key)
            return await handler(request)
        except ApiError as error:
            return error_response(error)
        except web.HTTPException as error:
            return error_response(_no_such_route(request, error))

    return door


async def sign(request: web.Request, response: web.StreamResponse) -> None:
    """Every answer, streamed ones too, says whose it is: the client's own id or a new one."""
    response.headers["X-Request-Id"] = request_id(request)


def _check_key(request: web.Request, key: str | None) -> None:
    if key is None or request.path in _OPEN_PATHS:
        return
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), key.encode()):
        raise ApiError(
            401,
            "The API key is missing or wrong; send it as `Authorization: Bearer KEY`.",
            code="invalid_api_key",
        )


def _no_such_route(request: web.Request, error: web.HTTPException) -> ApiError:
    asked = f"{request.method} {request.path}"
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return ApiError(405, f"{asked} is not possible; try {allowed}.", headers={"Allow": allowed})
    return ApiError(error.status, f"There is no {asked} here.", code="unknown_url")
