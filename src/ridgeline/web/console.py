"""The gateway's console: one page at `/` that shows what is served, and how well.

`mount_console` puts it on a gateway's app. The page is plain HTML, CSS and JavaScript from this
package: it loads nothing from elsewhere, and its policy forbids it to. Once a second it asks for
`/console.json`, which needs the gateway's key where one is set (the page asks for it).
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any, Final

from aiohttp import web

from ridgeline.serving.gateway.routes import OPEN_PATHS, WATCHERS_PATHS

_PAGE: Final = {
    "/": ("console.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/console.svg": ("console.svg", "image/svg+xml"),
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


def mount_console(app: web.Application, status: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
    """Add the page and `/console.json`, which answers with what `status` gives.

    To be called before the app is started. The page itself shows nothing and needs no key.
    """
    folder = resources.files(__package__)
    for path, (name, content_type) in _PAGE.items():
        app.router.add_get(path, _file((folder / name).read_bytes(), content_type))
    app[OPEN_PATHS].update(_PAGE)
    app[WATCHERS_PATHS].add("/console.json")

    async def console_json(_: web.Request) -> web.Response:
        return web.json_response(await status(), headers={"Cache-Control": "no-store"})

    app.router.add_get("/console.json", console_json)


def _file(body: bytes, content_type: str) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={**_HEADERS, "Content-Type": content_type})

    return answer
