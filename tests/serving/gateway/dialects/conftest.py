"""A server that speaks the dialects over a scripted chat-completions replica, on loopback."""

import functools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from ridgeline.serving.gateway.dialects import DIALECTS, Dialect
from ridgeline.serving.openai import ApiError

KEY = "sk-test"


@dataclass
class Scripted:
    """What the replica says next, and what it was asked."""

    status: int = 200
    whole: Any = None
    pieces: list[bytes] = field(default_factory=list)
    broken: ApiError | None = None  # why the pieces end too early
    asked: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    url: str = ""


async def _serve(scripted: Scripted, request: web.Request) -> web.StreamResponse:
    dialect = DIALECTS[request.path]
    try:
        return await _answer(scripted, dialect, request)
    except ApiError as error:
        status, body = dialect.error(error)
        return web.Response(status=status, body=body, content_type="application/json")


async def _answer(scripted: Scripted, dialect: Dialect, request: web.Request) -> web.StreamResponse:
    if dialect.authorization(request.headers) != f"Bearer {KEY}":
        raise ApiError(401, "The key is wrong.", code="invalid_api_key")
    body = await request.read()
    translation = dialect.request(body, request_id="req-0123", now_s=1_700_000_000.5)
    scripted.asked, scripted.path = json.loads(translation.body), translation.path
    if scripted.status != 200:
        told = dialect.refusal(scripted.status, json.dumps(scripted.whole).encode())
        return web.Response(status=scripted.status, body=told, content_type="application/json")
    if not scripted.pieces:
        told = translation.whole(json.dumps(scripted.whole).encode())
        return web.Response(body=told, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    stream = translation.stream()
    for piece in scripted.pieces:
        await response.write(stream.feed(piece))
    await response.write(stream.finish(scripted.broken))
    await response.write_eof()
    return response


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    told = Scripted()
    app = web.Application()
    for path in DIALECTS:
        app.router.add_post(path, functools.partial(_serve, told))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    told.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield told
    await runner.cleanup()
