"""The fake replica: OpenAI's endpoints before the fake engine, and everything that can go wrong.

`ridgeline fake-replica` runs one as a process (`serve`); tests open one on a free port:

    async with FakeReplica(Setup(time_scale=0)) as replica:
        ...  # requests to replica.url
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ridgeline import event_loop
from ridgeline.errors import LaunchError
from ridgeline.launch.start_clock import StartClock, process_began_s, stage_event
from ridgeline.serving.fake.faults import Fault, parse
from ridgeline.serving.fake.generating import Endpoints
from ridgeline.serving.fake.pages import Pages
from ridgeline.serving.fake.replica import Replica, request_id
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.http_guard import GuardedServer, error_response
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.states import State

_PARTING_S = 2.0


class FakeReplica:
    """A fake replica in this process, from `async with` until it is left; `url` is where it is.

    `faults` are Faults or their written form. The fault "die" ends it as the network would see
    it: every connection is cut, and nobody listens any longer. Raises LaunchError where the
    address is taken.
    """

    def __init__(
        self,
        setup: Setup | None = None,
        *,
        faults: Sequence[Fault | str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        die: Callable[[], None] | None = None,
    ) -> None:
        told = [parse(fault) if isinstance(fault, str) else fault for fault in faults]
        self.replica = Replica(setup or Setup(), told, die=die or self._die)
        self.url = ""
        self._host, self._port = host, port
        self._server = GuardedServer(make_app(self.replica))
        self._tasks: list[asyncio.Task[None]] = []
        self._dying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listen; ready at once, or after `loading_s`."""
        try:
            self.url = await self._server.listen(self._host, self._port)
        except LaunchError:
            self.replica.log.close()
            raise
        self._tasks = [asyncio.create_task(self.replica.engine.run())]
        if self.replica.setup.loading_s:
            self._tasks.append(asyncio.create_task(self._load()))
        else:
            self.replica.state = State.READY
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cut what still runs, and be gone."""
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._dying is not None:
            await self._dying
        await self._server.stop(0)
        self.replica.log.close()
        for end in ends:
            if isinstance(end, Exception):  # the engine's loop has ended by a mistake of ours
                raise end

    async def ready(self) -> None:
        """Wait until it has loaded."""
        await asyncio.gather(*self._tasks[1:])

    async def drain(self) -> None:
        """Take nothing new and let what runs end, within the grace; what does not is told so."""
        self.replica.state = State.DRAINING
        if not await self._server.drain(self.replica.setup.grace_s):
            gone = ApiError(503, "This replica is shutting down.", code="shutting_down")
            self.replica.engine.fail_all(gone)
            await self._server.drain(_PARTING_S)

    async def _load(self) -> None:
        await asyncio.sleep(self.replica.setup.loading_s)
        if self.replica.state == State.LOADING:
            self.replica.state = State.READY

    def _die(self) -> None:
        if self._dying is None:
            self._dying = asyncio.create_task(self._server.stop(0))


def serve(
    setup: Setup,
    *,
    faults: Sequence[Fault] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    starting_s: float = 0.0,
    die: Callable[[], None],
    said: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> int:
    """Serve until SIGTERM or Ctrl-C, then drain; returns the exit status 0.

    `starting_s` passes before it listens. `said` hears "listening" (with `url`), "stage" as
    `engine.front` says it, and "ready" with what each stage really took.
    Raises LaunchError where the address is taken.
    """
    clock = StartClock(process_began_s(os.getpid()), lambda *turn: said(stage_event(*turn)))

    async def main() -> None:
        leave = asyncio.Event()
        event_loop.on_signals(leave.set)
        leaving = asyncio.create_task(leave.wait())
        clock.begin("starting")
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(leaving), starting_s)
        async with FakeReplica(setup, faults=faults, host=host, port=port, die=die) as replica:
            said({"event": "listening", "url": replica.url})
            clock.begin("loading")
            loading = asyncio.create_task(replica.ready())
            await asyncio.wait({loading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                clock.end()
                about = {"url": replica.url, "model": setup.name, "stages_s": clock.spent_s}
                said({"event": "ready", **about})
            await leaving
            await replica.drain()
            loading.cancel()

    event_loop.run(main())
    return 0


def make_app(replica: Replica) -> web.Application:
    """The routes of one fake replica."""
    endpoints, pages = Endpoints(replica), Pages(replica)
    app = web.Application(middlewares=[_door(replica)])
    app.on_response_prepare.append(_sign)
    app.add_routes(
        [
            web.post("/v1/chat/completions", endpoints.chat),
            web.post("/v1/completions", endpoints.completions),
            web.post("/v1/embeddings", endpoints.embeddings),
            web.get("/v1/models", pages.models),
            web.get("/health", pages.health),
            web.get("/ready", pages.ready),
            web.get("/metrics", pages.metrics),
            web.get("/version", pages.version),
            web.get("/usage/{id}", pages.usage),
            web.post("/tokenize", pages.tokenize),
            web.post("/detokenize", pages.detokenize),
            web.get("/fake/faults", pages.faults),
            web.post("/fake/faults", pages.order),
        ]
    )
    return app


def _door(replica: Replica) -> Middleware:
    """Every request passes: it is asked for its key, and errors get OpenAI's shape."""

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            replica.check_key(request)
            return await handler(request)
        except ApiError as error:
            return error_response(error)
        except web.HTTPException as error:
            problem = f"There is no {request.method} {request.path} here."
            return error_response(ApiError(error.status, problem, code="unknown_url"))

    return door


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["X-Request-Id"] = request_id(request)
