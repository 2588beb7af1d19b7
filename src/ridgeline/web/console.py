"""The gateway's console: one page at `/` that shows what is served, by what, to whom, at what cost.

`mount_console` puts it on a gateway's app. The page is plain HTML, CSS and JavaScript from this
package: it loads nothing from elsewhere, and its policy forbids it to. Once a second it asks for
`/console.json`, and for what lies in the database only while that is looked at. All of that shows
every tenant's traffic, so where there are keys it needs one that may watch (the page asks for it).
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any, Final

from aiohttp import web
from sqlalchemy import Engine

from ridgeline.errors import StoreError
from ridgeline.serving.gateway.console_data import HOURS, ConsoleData
from ridgeline.serving.gateway.routes import OPEN_PATHS, WATCHERS_PATHS
from ridgeline.serving.openai import ApiError
from ridgeline.web.control_data import ControlData

#: Parts of the page's script; `console.js` is where it begins.
_SCRIPTS: Final = (
    "page", "charts", "now", "models", "history", "rollouts", "tenants", "routing", "cost", "why",
)  # fmt: skip
_PAGE: Final = {
    "/": ("console.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/console.svg": ("console.svg", "image/svg+xml"),
    **{
        f"/console/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS
    },
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_MOST_ID = 200

Status = Callable[[], Awaitable[Mapping[str, Any]]]


def mount_console(app: web.Application, status: Status, store: Engine) -> None:
    """Add the page and what it asks for: `status`, and what lies in `store`.

    To be called before the app is started. The page itself shows nothing and needs no key.
    """
    folder = resources.files(__package__)
    for path, (name, content_type) in _PAGE.items():
        app.router.add_get(path, _file((folder / name).read_bytes(), content_type))
    app[OPEN_PATHS].update(_PAGE)
    data, control = ConsoleData(store), ControlData(store)

    async def close(_: web.Application) -> None:
        await data.close()
        await control.close()

    async def console_json(_: web.Request) -> web.Response:
        return web.json_response(await status(), headers={"Cache-Control": "no-store"})

    async def models(_: web.Request) -> web.Response:
        return await _told(control.view())

    async def tenants(_: web.Request) -> web.Response:
        return await _told(data.tenants())

    async def routing(_: web.Request) -> web.Response:
        return await _told(data.routing())

    async def cost(request: web.Request) -> web.Response:
        return await _told(data.cost(_hours(request.query.get("hours", "24"))))

    async def why(request: web.Request) -> web.Response:
        return await _why(data, request.query.get("id", ""))

    app.on_cleanup.append(close)
    answers = {
        "/console.json": console_json,
        "/console/models.json": models,
        "/console/tenants.json": tenants,
        "/console/routing.json": routing,
        "/console/cost.json": cost,
        "/console/why.json": why,
    }
    for path, answer in answers.items():
        app.router.add_get(path, answer)
    app[WATCHERS_PATHS].update(answers)


async def _told(asked: Awaitable[bytes]) -> web.Response:
    """What the database says, or a 503 that says why not."""
    try:
        body = await asked
    except StoreError as error:
        raise _no_store(error) from error
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=body, content_type="application/json", headers=headers)


async def _why(data: ConsoleData, request_id: str) -> web.Response:
    if not 0 < len(request_id) <= _MOST_ID:
        raise ApiError(400, "`id` is a request's id.", param="id")
    try:
        found = await data.why(request_id)
    except StoreError as error:
        raise _no_store(error) from error
    if found is None:
        problem = "Nothing is on record: it was refused before it was routed, or is a day old."
        raise ApiError(404, problem, code="request_not_found")
    return web.json_response(found, headers={"Cache-Control": "no-store"})


def _hours(given: str) -> int:
    known = {str(hours): hours for hours in HOURS}
    if given not in known:
        raise ApiError(400, f"`hours` is one of {', '.join(known)}.", param="hours")
    return known[given]


def _no_store(error: StoreError) -> ApiError:
    headers = {"Retry-After": "1"}
    return ApiError(503, f"{error}", code="ledger_unavailable", headers=headers)


def _file(body: bytes, content_type: str) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={**_HEADERS, "Content-Type": content_type})

    return answer
