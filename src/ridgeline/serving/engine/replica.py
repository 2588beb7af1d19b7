"""What a replica's HTTP handlers share: its model, its engine, and whether it takes requests.

`front` makes one and moves it through its states; `endpoints` and `status` ask it.
"""

import asyncio
import string
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

from ridgeline.serving.engine.asking import Bounds
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.link import EngineLink
from ridgeline.serving.engine.messages import Started
from ridgeline.serving.engine.metrics import Metrics
from ridgeline.serving.engine.prompts import Prompts
from ridgeline.serving.openai import ApiError, model_not_found
from ridgeline.serving.usage_log import UsageLog

_REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
_ID_CHARS = 128
#: What an id may have; gateways mark a second attempt as `ID~2`.
_HARMLESS = frozenset(string.ascii_letters + string.digits + "-_.:~")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may ask of one replica.

    `body_bytes` is the largest request body, `requests` how many may be open at once, `grace_s`
    how long they may take to finish after SIGTERM.
    """

    body_bytes: int = 4_000_000
    requests: int = 1024
    grace_s: float = 30.0


class State(StrEnum):
    """A replica's life, in this order; from every state but the last one it may be lost."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is known once the engine has generated its first token."""

    link: EngineLink
    started: Started
    prompts: Prompts
    bounds: Bounds


class Replica:
    """One model behind one engine process, as the handlers see it."""

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        limits: Limits,
        key: str | None,
        log: UsageLog | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.limits = limits
        self.key = key
        self.log = log
        self.created = int(time.time())
        self.metrics = Metrics(name)
        self.state = State.LOADING
        self._loaded: Loaded | None = None
        self._answering = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def quiet(self) -> asyncio.Event:
        """Set while no request is open."""
        return self._quiet

    @property
    def started(self) -> Started | None:
        """What the engine said of itself; None while it loads."""
        return self._loaded.started if self._loaded else None

    @property
    def loaded(self) -> Loaded:
        """The model and its engine. Raises ApiError 503 where there is none (yet, or any more)."""
        if self.state == State.LOST or self._loaded is None:
            raise self._unavailable()
        return self._loaded

    def ready(self, loaded: Loaded) -> None:
        """From now on requests are taken, unless the end has come before the beginning."""
        self._loaded = loaded
        if self.state == State.LOADING:
            self.state = State.READY

    def check_model(self, name: str | None) -> None:
        """Raises ApiError 404 where a request is for another model."""
        if name is not None and name != self.name:
            raise model_not_found(name, [self.name])

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Around the answer to one request. Raises ApiError 503 where none can be taken."""
        if self.state != State.READY:
            raise self._unavailable()
        if self._answering >= self.limits.requests:
            raise _retry("This replica has all the requests it can hold.", "overloaded")
        self._answering += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                self._quiet.set()

    def _unavailable(self) -> ApiError:
        match self.state:
            case State.LOADING:
                return _retry("The model is being loaded.", "model_loading")
            case State.DRAINING:
                return shutting_down()
            case _:
                return _retry("The engine of this replica has died.", "engine_dead")


def request_id(request: web.Request) -> str:
    """The client's own X-Request-Id where it is harmless, else a new one; one for each request."""
    known = request.get(_REQUEST_ID)
    if known is None:
        given = request.headers.get("X-Request-Id", "")
        harmless = 0 < len(given) <= _ID_CHARS and _HARMLESS.issuperset(given)
        known = request[_REQUEST_ID] = given if harmless else uuid.uuid4().hex
    return known


def shutting_down() -> ApiError:
    """The answer once the replica has been told to leave."""
    return _retry("This replica is shutting down.", "shutting_down")


def _retry(message: str, code: str) -> ApiError:
    return ApiError(503, message, code=code, headers={"Retry-After": "1"})
