"""What the handlers of a fake replica share: its engine, its log, its faults, its state."""

import hmac
import os
import string
import uuid
from collections.abc import Callable, Sequence

from aiohttp import web

from ridgeline.serving.fake.engine import FakeEngine
from ridgeline.serving.fake.faults import Fault, Faults
from ridgeline.serving.fake.metrics import Metrics
from ridgeline.serving.fake.setup import MetricNames, Setup
from ridgeline.serving.openai import ApiError, model_not_found
from ridgeline.serving.policy.states import State
from ridgeline.serving.usage_log import UsageLog

_REQUEST_ID = frozenset(string.ascii_letters + string.digits + "-_.:~")
_OPEN_PATHS = frozenset({"/health", "/ready", "/metrics", "/version"})
#: How gateways of ours mark the request that asks for a first token.
_PROBE = "probe-"
#: The request's own id, or the one it was given.
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)


class Replica:
    """One fake replica. `die` ends it at once; a process of its own just exits."""

    def __init__(
        self,
        setup: Setup,
        faults: Sequence[Fault] = (),
        *,
        die: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self.setup = setup
        self.log = UsageLog(setup.usage_log)
        self.engine = FakeEngine(setup, self.log)
        self.metrics = Metrics(setup.name)
        self.faults = Faults(faults, setup.seed)
        self.state = State.LOADING
        self.die = die
        # What may be changed while it runs.
        self.adapters = setup.adapters
        self.models = setup.models
        self.metric_names: MetricNames = setup.metrics
        self.is_healthy = True

    def check_key(self, request: web.Request) -> None:
        """Raises ApiError 401 where a key is needed and another one, or none, was sent."""
        key = self.setup.api_key
        if key is None or request.path in _OPEN_PATHS:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), key.encode()):
            raise ApiError(401, "The API key is missing or wrong.", code="invalid_api_key")

    def check_model(self, name: str | None) -> None:
        """Raises ApiError 404 where a request is for another model."""
        known = [self.setup.name, *self.adapters]
        if name is not None and name not in known:
            raise model_not_found(name, known)

    def check_ready(self) -> None:
        """Raises ApiError 503 where no request can be taken."""
        if self.state == State.READY:
            return
        message, code = "The model is being loaded.", "model_loading"
        if self.state == State.DRAINING:
            message, code = "This replica is shutting down.", "shutting_down"
        raise ApiError(503, message, code=code, headers={"Retry-After": "1"})

    def fault_for(self, request: web.Request) -> Fault | None:
        """What this request meets. Raises ApiError where it is an error in place of an answer."""
        probe = request.headers.get("X-Request-Id", "").startswith(_PROBE)
        fault = self.faults.draw(probe=probe)
        if fault is None or fault.kind != "error":
            return fault
        headers = {"Retry-After": str(fault.retry_after_s)} if fault.status in (429, 503) else {}
        raise ApiError(
            fault.status, "The fake replica fails, as it was told to.", code="fake", headers=headers
        )


def request_id(request: web.Request) -> str:
    """The client's own id where it is harmless, else a new one; the same for one request."""
    known = request.get(REQUEST_ID)
    if known is None:
        given = request.headers.get("X-Request-Id", "")
        harmless = 0 < len(given) <= 128 and _REQUEST_ID.issuperset(given)
        known = request[REQUEST_ID] = given if harmless else uuid.uuid4().hex
    return known
