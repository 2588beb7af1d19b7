"""The admin API: tenants, keys, usage and the audit log over HTTP, under /admin/v1.

A viewer's key reads, an admin's key changes too; both see every tenant. A user's key sees the usage
of its own tenant at /v1/usage and nothing else. What only looks like a key sees nothing.
"""

import asyncio
import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from ridgeline.errors import RidgelineError, StoreError
from ridgeline.serving.gateway import admin_wire as wire
from ridgeline.serving.gateway.admin_openapi import Operation, document
from ridgeline.serving.gateway.admin_usage import usage
from ridgeline.serving.gateway.callers import Caller, Callers
from ridgeline.serving.gateway.tenants import (
    ConflictError,
    KeySpec,
    NotThereError,
    TenantChange,
    Tenants,
)
from ridgeline.serving.http_guard import error_response, read_body
from ridgeline.serving.openai import ApiError
from ridgeline.serving.tenant_spec import TenantSpec

_MOST_BODY_BYTES = 64 * 1024
_BODY_WITHIN_S = 10.0
_ROOT = "/admin/v1"

#: Which roles have a right.
_RIGHTS = {
    "own": ("user", "viewer", "admin"),
    "read": ("viewer", "admin"),
    "change": ("admin",),
}

OPERATIONS: Final = (
    Operation("GET", f"{_ROOT}/tenants", "tenants", "Tenants by name.", "read",
              wire.TenantPage, query=wire.TenantsQuery),
    Operation("POST", f"{_ROOT}/tenants", "make_tenant", "A new tenant.", "change",
              wire.ShownTenant, 201, body=wire.NewTenant),
    Operation("GET", f"{_ROOT}/tenants/{{name}}", "tenant", "One tenant.", "read",
              wire.ShownTenant),
    Operation("PATCH", f"{_ROOT}/tenants/{{name}}", "change_tenant", "Change a tenant.", "change",
              wire.ShownTenant, body=wire.ChangedTenant),
    Operation("DELETE", f"{_ROOT}/tenants/{{name}}", "disable_tenant",
              "Stop a tenant; what it used stays on record.", "change", wire.ShownTenant),
    Operation("GET", f"{_ROOT}/keys", "keys", "Keys by id, without their secrets.", "read",
              wire.KeyPage, query=wire.KeysQuery),
    Operation("POST", f"{_ROOT}/keys", "make_key",
              "A new key; its secret is in this answer and never again.", "change",
              wire.MadeKey, 201, body=wire.RequestedKey),
    Operation("GET", f"{_ROOT}/keys/{{id}}", "key", "One key.", "read", wire.ShownKey),
    Operation("DELETE", f"{_ROOT}/keys/{{id}}", "revoke_key", "Stop a key for good.", "change",
              wire.ShownKey),
    Operation("GET", f"{_ROOT}/usage", "all_usage", "What was used, by whom.", "read",
              wire.UsagePage, query=wire.UsageQuery),
    Operation("GET", f"{_ROOT}/audit", "changes", "Who changed what, newest first.", "read",
              wire.ChangePage, query=wire.ChangesQuery),
    Operation("GET", "/v1/usage", "own_usage", "What the key's own tenant used.", "own",
              wire.UsagePage, query=wire.OwnUsageQuery),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """A request that may be answered: who asks for what, checked."""

    caller: Caller
    path: Mapping[str, str]
    query: Any = None
    body: Any = None

    @property
    def actor(self) -> str:
        """Whom the audit log names."""
        return f"key:{self.caller.key_id}"


def add_admin(app: web.Application, tenants: Tenants, callers: Callers) -> None:
    """Give an application the admin API's paths. It looks at keys itself."""
    answers = _Answers(tenants, callers)
    for one in OPERATIONS:
        app.router.add_route(one.method, one.path, _handler(one, answers, callers), name=one.does)
    described = msgspec.json.encode(document(OPERATIONS))

    async def openapi(request: web.Request) -> web.Response:
        try:
            _require(await _caller(request, callers), "read")
        except ApiError as error:
            return error_response(error)
        return web.Response(body=described, content_type="application/json")

    app.router.add_get(f"{_ROOT}/openapi.json", openapi)


class _Answers:
    """A method for each operation. They may block: each runs in a thread of its own."""

    def __init__(self, tenants: Tenants, callers: Callers) -> None:
        self._tenants = tenants
        self._callers = callers

    def tenants(self, given: Given) -> wire.TenantPage:
        query: wire.TenantsQuery = given.query
        found = self._tenants.list_tenants(after=query.after or "", most=query.limit + 1)
        shown = [wire.shown_tenant(one) for one in found[: query.limit]]
        return wire.TenantPage(shown, has_more=len(found) > query.limit)

    def make_tenant(self, given: Given) -> wire.ShownTenant:
        spec = wire.as_spec(given.body, TenantSpec)
        return wire.shown_tenant(self._tenants.create(spec, actor=given.actor))

    def tenant(self, given: Given) -> wire.ShownTenant:
        return wire.shown_tenant(self._tenants.get(given.path["name"]))

    def change_tenant(self, given: Given) -> wire.ShownTenant:
        change = wire.as_spec(given.body, TenantChange)
        name = given.path["name"]
        return wire.shown_tenant(self._tenants.change(name, change, actor=given.actor))

    def disable_tenant(self, given: Given) -> wire.ShownTenant:
        return wire.shown_tenant(self._tenants.disable(given.path["name"], actor=given.actor))

    def keys(self, given: Given) -> wire.KeyPage:
        query: wire.KeysQuery = given.query
        found = self._tenants.list_keys(
            tenant=query.tenant or None, after=query.after or "", most=query.limit + 1
        )
        shown = [wire.shown_key(one) for one in found[: query.limit]]
        return wire.KeyPage(shown, has_more=len(found) > query.limit)

    def make_key(self, given: Given) -> wire.MadeKey:
        wanted = msgspec.to_builtins(given.body)
        if (lives_s := wanted.pop("expires_in_s")) is not None:
            wanted["expires_ns"] = time.time_ns() + lives_s * 10**9
        return wire.made_key(
            self._tenants.create_key(wire.as_spec(wanted, KeySpec), actor=given.actor)
        )

    def key(self, given: Given) -> wire.ShownKey:
        return wire.shown_key(self._tenants.key(given.path["id"]))

    def revoke_key(self, given: Given) -> wire.ShownKey:
        return wire.shown_key(self._tenants.revoke(given.path["id"], actor=given.actor))

    def all_usage(self, given: Given) -> wire.UsagePage:
        tenant = given.query.tenant or None
        return usage(self._tenants.engine, given.query, tenant=tenant, today=_today())

    def own_usage(self, given: Given) -> wire.UsagePage:
        tenant = given.caller.tenant
        return usage(self._tenants.engine, given.query, tenant=tenant, today=_today())

    def changes(self, given: Given) -> wire.ChangePage:
        query: wire.ChangesQuery = given.query
        found = self._tenants.audited(before=query.before or None, most=query.limit + 1)
        shown = [wire.shown_change(row) for row in found[: query.limit]]
        return wire.ChangePage(shown, has_more=len(found) > query.limit)


def _handler(one: Operation, answers: _Answers, callers: Callers) -> Callable[[web.Request], Any]:
    answer: Callable[[Given], msgspec.Struct] = getattr(answers, one.does)

    async def handle(request: web.Request) -> web.Response:
        try:
            caller = await _caller(request, callers)
            _require(caller, one.needs)
            given = await _given(request, caller, one)
            shown = await asyncio.to_thread(answer, given)
        except ApiError as error:
            return error_response(error)
        except RidgelineError as error:
            return error_response(_as_api_error(error))
        if one.needs == "change":
            callers.forget()
        body = msgspec.json.encode(shown)
        return web.Response(body=body, status=one.status, content_type="application/json")

    return handle


async def _caller(request: web.Request, callers: Callers) -> Caller:
    return await callers.authenticate(request.headers.get("Authorization", ""))


def _require(caller: Caller, right: str) -> None:
    if caller.role not in _RIGHTS[right]:
        need = " or ".join(repr(role) for role in _RIGHTS[right])
        message = f"This needs a key of role {need}; this one is {caller.role!r}."
        raise ApiError(403, message, code="insufficient_permissions")


async def _given(request: web.Request, caller: Caller, one: Operation) -> Given:
    query = wire.read_query(
        {name: request.query.getall(name) for name in request.query}, one.query or wire.Wire
    )
    body = None
    if one.body is not None:
        raw = await read_body(request, _MOST_BODY_BYTES, _BODY_WITHIN_S)
        body = wire.read_strict(raw, one.body)
    return Given(caller, _plain(request.match_info), query, body)


def _plain(path: Mapping[str, str]) -> Mapping[str, str]:
    """The names in a path; one that no tenant or key can have is not looked up."""
    for value in path.values():
        if not (value.isascii() and value.isprintable()):
            raise ApiError(404, "There is none of that name.")
    return path


def _as_api_error(error: RidgelineError) -> ApiError:
    message = f"{error.problem}; {error.remedy}." if error.remedy else f"{error.problem}."
    match error:
        case NotThereError():
            return ApiError(404, message, param=error.where)
        case ConflictError():
            return ApiError(409, message, param=error.where)
        case StoreError():
            headers = {"Retry-After": "1"}
            problem = "The database cannot be asked now. Try again."
            return ApiError(503, problem, code="overloaded", headers=headers)
    return ApiError(400, message, param=error.where or None)


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()
