"""Who asks: from an `Authorization` header to a tenant with its limits.

A key is looked up by its SHA-256, so how long that takes says nothing about the keys that there
are. Answers are kept for a second, no longer: a key that is revoked, expired or whose tenant is
disabled stops within that. All who wait are looked up by one query at a time:

    authenticate ──kept?──▶ answer
         │ no                  ▲
         ▼                     │
      waiting ──▶ one query for all of them, in a thread ──▶ kept for a second

so the database sees a few queries a second whatever is sent here; what has not even the form of a
key never gets that far. Nothing is kept of a key but its digest.
"""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from ridgeline.errors import StoreError
from ridgeline.serving.gateway.tenant_rows import limits_from
from ridgeline.serving.gateway.tenants import digest, is_secret
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.limits import Limits
from ridgeline.store.database import reading
from ridgeline.store.tables import api_keys, tenants

#: The tenant of whoever asks with the platform's own key, or with none where none is needed.
DEFAULT_TENANT = "default"
#: How long an answer is believed.
_FRESH_NS = 1_000_000_000
#: Answers kept, and callers that may wait for one: memory stays bounded whatever is sent.
_MOST_KEPT = 10_000
_MOST_WAITING = 5_000
#: Keys in one query: SQLite takes at least 999 values.
_MOST_IN_QUERY = 500
#: How long anybody waits for the database before they are told to come again.
_PATIENCE_S = 5.0

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant by one of its keys. `role` is "user", "viewer" or "admin"; no `models`: all."""

    tenant: str
    key_id: str
    role: str = "user"
    priority_class: str = "default"
    weight: float = 1.0
    models: frozenset[str] | None = None
    tenant_limits: Limits = field(default_factory=Limits)
    key_limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of a digest: whom it lets in, or why it does not, as of a moment."""

    caller: Caller | None
    refusal: str
    status: int
    expires_ns: int | None
    asked_ns: int


class Callers:
    """Lets callers in by their keys.

    `api_key` is the platform's one key, `admin_key` the one that may change tenants; both are
    tenant "default". With `open_caller`, everybody else comes in as that, whatever they send,
    until the database has a key or a tenant other than "default".
    """

    def __init__(
        self,
        engine: Engine,
        *,
        open_caller: Caller | None = None,
        api_key: str | None = None,
        admin_key: str | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._engine = engine
        self._open_caller = open_caller
        self._own = [
            (digest(key), role)
            for key, role in ((api_key, "user"), (admin_key, "admin"))
            if key is not None
        ]
        self._now_ns, self._monotonic_ns = now_ns, monotonic_ns
        self._kept: dict[str, _Kept] = {}
        self._waiting: dict[str, asyncio.Future[_Kept | ApiError]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._forgot_ns = -1
        self._is_down = False

    async def authenticate(self, header: str) -> Caller:
        """The caller that an `Authorization` header names.

        ApiError 401 without a key that is known, 403 where its tenant is disabled, 503 where the
        database cannot be asked.
        """
        secret = _secret(header)
        hashed = digest(secret)
        for own, role in self._own:
            if hmac.compare_digest(own, hashed):
                caller = _admitted(await self._known(_PLATFORM), self._now_ns())
                return replace(caller, role=role, key_id=f"platform-{role}")
        if self._open_caller is not None:
            # Most clients always send some key: where none is needed, any will do.
            nobody = await self._known(_NOBODY)
            if nobody.status != 401:
                return _admitted(nobody, self._now_ns())
        if not secret:
            raise _unauthorized(_NO_KEY)
        if not is_secret(secret):
            raise _unauthorized(_UNKNOWN)
        return _admitted(await self._known(hashed), self._now_ns())

    def forget(self) -> None:
        """Believe nothing that was asked before: something has just been changed here."""
        self._kept.clear()
        self._forgot_ns = self._monotonic_ns()

    async def _known(self, hashed: str) -> _Kept:
        kept = self._kept.get(hashed)
        if kept is not None and self._monotonic_ns() - kept.asked_ns < _FRESH_NS:
            return kept
        waiting = self._waiting.get(hashed)
        if waiting is None:
            if len(self._waiting) >= _MOST_WAITING:
                raise _unavailable("too many keys are being looked up")
            waiting = self._waiting[hashed] = asyncio.get_running_loop().create_future()
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_up())
        try:
            # Shielded: one that leaves must not take the answer from the others.
            answer = await asyncio.wait_for(asyncio.shield(waiting), _PATIENCE_S)
        except TimeoutError:
            raise _unavailable("its database does not answer") from None
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def _look_up(self) -> None:
        """Answer all who wait, and all who come meanwhile."""
        while self._waiting:
            some = list(self._waiting)[:_MOST_IN_QUERY]
            asked_ns = self._monotonic_ns()  # before the query: what it says is at least as new
            found: Mapping[str, _Kept | ApiError]
            try:
                found = await asyncio.to_thread(self._query, some, asked_ns)
            except Exception as error:  # whatever it is, nobody may wait for ever
                self._failed(error)
                found = dict.fromkeys(some, _unavailable("its database cannot be asked"))
            else:
                self._is_down = False
            for hashed in some:
                answer = found[hashed]
                if isinstance(answer, _Kept) and asked_ns > self._forgot_ns:
                    self._keep(hashed, answer)
                waiting = self._waiting.pop(hashed)
                if not waiting.done():
                    waiting.set_result(answer)

    def _failed(self, error: Exception) -> None:
        """Say it when it begins, not for every request."""
        if not isinstance(error, StoreError):
            _LOG.error("callers cannot be looked up", exc_info=error)
        elif not self._is_down:
            _LOG.error("callers cannot be looked up: %s", error)
        self._is_down = True

    def _keep(self, hashed: str, answer: _Kept) -> None:
        self._kept.pop(hashed, None)
        self._kept[hashed] = answer
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _query(self, digests: Collection[str], asked_ns: int) -> "dict[str, _Kept]":
        found = dict.fromkeys(digests, _Kept(None, _UNKNOWN, 401, None, asked_ns))
        hashed = [one for one in digests if one not in (_NOBODY, _PLATFORM)]
        with reading(self._engine) as connection:
            if _NOBODY in found:
                found[_NOBODY] = self._nobody(connection, asked_ns)
            if _PLATFORM in found:
                found[_PLATFORM] = _as_tenant(connection, _DEFAULT, asked_ns)
            if hashed:
                query = select(*_COLUMNS).join_from(api_keys, tenants)
                for row in connection.execute(query.where(api_keys.c.digest.in_(hashed))):
                    found[row.digest] = _kept(row, asked_ns)
        return found

    def _nobody(self, connection: Connection, asked_ns: int) -> _Kept:
        """Whom a request without a key is."""
        assert self._open_caller is not None, "authenticate() asks only where there is one"
        others = select(tenants.c.name).where(tenants.c.name != self._open_caller.tenant)
        for query in (others, select(api_keys.c.id)):
            if connection.execute(query.limit(1)).first() is not None:
                return _Kept(None, _NO_KEY, 401, None, asked_ns)
        return _as_tenant(connection, self._open_caller, asked_ns)


_NOBODY, _PLATFORM = "", "platform"
_DEFAULT = Caller(DEFAULT_TENANT, "")
_UNKNOWN = "Incorrect API key provided."
_NO_KEY = "This gateway needs an API key, as `Authorization: Bearer KEY`."
_COLUMNS = (
    api_keys.c.digest,
    api_keys.c.id,
    api_keys.c.role,
    api_keys.c.models,
    api_keys.c.limits.label("key_limits"),
    api_keys.c.expires_ns,
    api_keys.c.revoked_ns,
    tenants.c.name,
    tenants.c.priority_class,
    tenants.c.weight,
    tenants.c.limits,
    tenants.c.disabled_ns,
)


def _kept(row: Any, asked_ns: int) -> _Kept:
    """What a key's row says."""
    if row.revoked_ns is not None:
        return _Kept(None, "This API key was revoked.", 401, None, asked_ns)
    caller = Caller(
        tenant=row.name,
        key_id=row.id,
        role=row.role,
        models=frozenset(json.loads(row.models)) if row.models is not None else None,
        key_limits=limits_from(row.key_limits),
    )
    return _of_tenant(caller, row, row.expires_ns, asked_ns)


def _as_tenant(connection: Connection, caller: Caller, asked_ns: int) -> _Kept:
    """A caller with the limits of its tenant, where there is one of that name."""
    row = connection.execute(select(tenants).where(tenants.c.name == caller.tenant)).first()
    if row is None:
        return _Kept(caller, "", 200, None, asked_ns)
    return _of_tenant(caller, row, None, asked_ns)


def _of_tenant(caller: Caller, row: Row[Any], expires_ns: int | None, asked_ns: int) -> _Kept:
    if row.disabled_ns is not None:
        return _Kept(None, f"Tenant {row.name!r} is disabled.", 403, expires_ns, asked_ns)
    limited = replace(
        caller,
        priority_class=row.priority_class,
        weight=row.weight,
        tenant_limits=limits_from(row.limits),
    )
    return _Kept(limited, "", 200, expires_ns, asked_ns)


def _admitted(kept: _Kept, now_ns: int) -> Caller:
    if kept.expires_ns is not None and kept.expires_ns <= now_ns:
        raise _unauthorized("This API key has expired.")
    if kept.caller is not None:
        return kept.caller
    if kept.status == 401:
        raise _unauthorized(kept.refusal)
    raise ApiError(kept.status, kept.refusal, code="tenant_disabled")


def _secret(header: str) -> str:
    """The key in a header; empty where there is none."""
    scheme, _, secret = header.strip().partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def _unauthorized(message: str) -> ApiError:
    headers = {"WWW-Authenticate": "Bearer"}
    return ApiError(401, message, code="invalid_api_key", headers=headers)


def _unavailable(problem: str) -> ApiError:
    message = f"The gateway cannot look up API keys now: {problem}. Try again."
    return ApiError(503, message, code="overloaded", headers={"Retry-After": "1"})
