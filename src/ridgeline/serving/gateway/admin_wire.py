"""What the admin API takes and gives, as types: they check what comes and are its OpenAPI schema.

Unknown fields are refused and nothing is coerced, so a misspelt limit is an error and not no limit.
Times are Unix seconds, as in OpenAI's API; money is text, since JSON's numbers are not exact.
"""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from pydantic import BaseModel, ValidationError

from ridgeline.serving.gateway.tenant_rows import Audited, Key, Role, Tenant
from ridgeline.serving.gateway.tenants import NewKey
from ridgeline.serving.openai import ApiError
from ridgeline.serving.openai.reading import read
from ridgeline.serving.tenant_spec import TENANT_NAME, LimitsSpec, PriorityClass

Count = Annotated[int, Meta(gt=0, le=10**15)]
TenantName = Annotated[str, Meta(pattern=TENANT_NAME, max_length=63)]
KeyId = Annotated[str, Meta(pattern="^[a-z0-9-]+$", max_length=32)]
# No control characters: a NUL is in no database, and a line break would forge lines of a log.
ModelName = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]+$", min_length=1, max_length=200)]
Words = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=63)]
#: US dollars to the nano-dollar. As a number only where it is whole.
Usd = (
    Annotated[int, Meta(gt=0, lt=10**9)]
    | Annotated[str, Meta(pattern=r"^(0\.[0-9]{0,8}[1-9]|[1-9][0-9]{0,8}(\.[0-9]{1,9})?)$")]
)
Weight = Annotated[float, Meta(ge=0.001, le=1000)]
#: Ten years.
Lifetime = Annotated[int, Meta(gt=0, le=315_360_000)]


class Wire(Struct, forbid_unknown_fields=True, omit_defaults=False):
    """What comes in: no field but these."""


class Budget(Wire):
    """Money for a calendar day or month of a time zone."""

    usd: Usd
    per: Literal["day", "month"] = "month"
    timezone: str = "UTC"


class Limits(Wire):
    """What may be used; null takes a limit away, what is not named stays or is none."""

    requests_per_minute: Count | UnsetType | None = UNSET
    input_tokens_per_minute: Count | UnsetType | None = UNSET
    output_tokens_per_minute: Count | UnsetType | None = UNSET
    concurrent: Count | UnsetType | None = UNSET
    budget: Budget | UnsetType | None = UNSET


class NewTenant(Wire):
    """A tenant to be made."""

    name: TenantName
    priority_class: PriorityClass = msgspec.field(name="class", default="default")
    weight: Weight = 1.0
    limits: Limits = msgspec.field(default_factory=Limits)


class ChangedTenant(Wire):
    """What is to change of a tenant; what is not named stays."""

    priority_class: PriorityClass | UnsetType = msgspec.field(name="class", default=UNSET)
    weight: Weight | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


class RequestedKey(Wire):
    """A key to be made. No `models`: every model. No `expires_in_s`: until it is revoked."""

    tenant: TenantName
    name: Words = ""
    role: Role = "user"
    models: Annotated[list[ModelName], Meta(min_length=1, max_length=100)] | None = None
    limits: Limits = msgspec.field(default_factory=Limits)
    expires_in_s: Lifetime | None = None


class ShownTenant(Struct):
    """A tenant."""

    name: str
    priority_class: PriorityClass = msgspec.field(name="class")
    weight: float
    limits: dict[str, Any]
    origin: Literal["spec", "admin"]
    created_at: int
    disabled_at: int | None


class ShownKey(Struct):
    """A key, without its secret: `hint` is its beginning and its end."""

    id: str
    tenant: str
    name: str
    hint: str
    role: Role
    models: list[str] | None
    limits: dict[str, Any]
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class MadeKey(Struct):
    """A new key with its secret, which is not shown again."""

    key: ShownKey
    secret: str


class ShownChange(Struct):
    """A row of the audit log."""

    id: int
    at: int
    actor: str
    action: str
    target: str
    detail: dict[str, Any]


class ShownUsage(Struct, omit_defaults=True):
    """What was used; of `tenant`, `key`, `model` and `day` those that were asked for with `by`."""

    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    usd: str
    tenant: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    day: str | UnsetType = UNSET


class TenantPage(Struct):
    """Some tenants; ask again with `after`=the last one's name while `has_more`."""

    data: list[ShownTenant]
    has_more: bool
    object: Literal["list"] = "list"


class KeyPage(Struct):
    """Some keys; ask again with `after`=the last one's id while `has_more`."""

    data: list[ShownKey]
    has_more: bool
    object: Literal["list"] = "list"


class ChangePage(Struct):
    """Some changes, newest first; ask again with `before`=the last one's id while `has_more`."""

    data: list[ShownChange]
    has_more: bool
    object: Literal["list"] = "list"


class UsagePage(Struct):
    """Some usage; ask again with `offset` raised by the number of rows while `has_more`."""

    data: list[ShownUsage]
    has_more: bool
    object: Literal["list"] = "list"


Limit = Annotated[int, Meta(ge=1, le=1000)]
Offset = Annotated[int, Meta(ge=0, le=10**6)]
By = Annotated[str, Meta(pattern="^(tenant|key|model|day)(,(tenant|key|model|day)){0,3}$")]
OwnBy = Annotated[str, Meta(pattern="^(key|model|day)(,(key|model|day)){0,2}$")]


class TenantsQuery(Wire):
    """Which tenants."""

    after: TenantName | UnsetType = UNSET
    limit: Limit = 100


class KeysQuery(Wire):
    """Which keys."""

    tenant: TenantName | UnsetType = UNSET
    after: KeyId | UnsetType = UNSET
    limit: Limit = 100


class ChangesQuery(Wire):
    """Which rows of the audit log."""

    before: Annotated[int, Meta(ge=1, le=2**63 - 1)] | UnsetType = UNSET
    limit: Limit = 100


class OwnUsageQuery(Wire):
    """Which usage of one's own tenant. Days are of UTC, both included; 30 days where not given."""

    key: KeyId | UnsetType = UNSET
    model: ModelName | UnsetType = UNSET
    since: datetime.date | UnsetType = UNSET
    until: datetime.date | UnsetType = UNSET
    by: OwnBy = "model"
    limit: Limit = 100
    offset: Offset = 0


class UsageQuery(OwnUsageQuery):
    """Which usage of all tenants."""

    by: By = "tenant"
    tenant: TenantName | UnsetType = UNSET


W = TypeVar("W", bound=Wire)
M = TypeVar("M", bound=BaseModel)


def read_strict(body: bytes, into: type[W]) -> W:
    """A request's body, or the 400 that names the field at fault, an unknown one too."""
    try:
        return read(_whole_numbers(body), into)
    except ApiError as error:
        if unknown := re.search(r"^The body .*contains unknown field `(.*)`", error.message):
            field = unknown[1]
            known = ", ".join(one.encode_name for one in msgspec.structs.fields(into))
            message = f"Unknown field: {field}. Known here: {known}."
            raise ApiError(400, message, param=field, code="unknown_parameter") from None
        message = _in_words(error.message, error.param or "")
        raise ApiError(400, message, param=error.param, code=error.code) from None


def _whole_numbers(body: bytes) -> bytes:
    """The same body with 5.0 as 5: JSON has one kind of number, and both are whole."""

    def whole(value: Any) -> Any:
        match value:
            case float() if value.is_integer():
                return int(value)
            case dict():
                return {name: whole(one) for name, one in value.items()}
            case list():
                return [whole(one) for one in value]
        return value

    try:
        return msgspec.json.encode(whole(msgspec.json.decode(body)))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return body  # no JSON: who reads it says why


def read_query(given: Mapping[str, list[str]], into: type[W]) -> W:
    """A request's query, or the 400 that names the parameter at fault."""
    known = {one.encode_name for one in msgspec.structs.fields(into)}
    for name, values in given.items():
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ApiError(400, f"Unknown parameter: {name}. Known here: {there}.", param=name)
        if len(values) > 1:
            raise ApiError(400, f"Parameter {name} is given twice.", param=name)
    try:
        return msgspec.convert({name: one[0] for name, one in given.items()}, into, strict=False)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        message = _in_words(f"Invalid value for {name}: {what[0].lower()}{what[1:]}.", name)
        raise ApiError(400, message, param=name or None) from None


def _in_words(message: str, param: str) -> str:
    """A complaint without regular expressions."""
    words = "text without control characters"
    if "x00" not in message:
        words = _FORMS.get(param.rpartition(".")[2], words)
    return re.sub(r"expected `str` matching regex .*", f"expected {words}.", message)


_TENANT_FORM = "lower-case letters, digits and inner dots, hyphens and underscores"
_FORMS = {
    "usd": 'US dollars, as a whole number or as text such as "99.95"',
    "name": _TENANT_FORM,
    "tenant": _TENANT_FORM,
    "after": "the last name or id of the page before",
    "key": "a key's id",
    "by": "some of tenant, key, model and day, joined by commas",
}


def as_spec(given: Struct | dict[str, Any], kind: type[M]) -> M:
    """What came in as the spec it stands for, or the 400 for what only the spec knows."""
    data = given if isinstance(given, dict) else msgspec.to_builtins(given)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise ApiError(400, f"Invalid value for {where}: {problem}.", param=where) from None


def shown_tenant(tenant: Tenant) -> ShownTenant:
    """A tenant as it is given out."""
    return ShownTenant(
        name=tenant.name,
        priority_class=tenant.priority_class,
        weight=tenant.weight,
        limits=_shown_limits(tenant.limits),
        origin=tenant.origin,
        created_at=_seconds(tenant.created_ns),
        disabled_at=_maybe_seconds(tenant.disabled_ns),
    )


def shown_key(key: Key) -> ShownKey:
    """A key as it is given out."""
    return ShownKey(
        id=key.id,
        tenant=key.tenant,
        name=key.name,
        hint=key.hint,
        role=key.role,
        models=list(key.models) if key.models is not None else None,
        limits=_shown_limits(key.limits),
        created_at=_seconds(key.created_ns),
        expires_at=_maybe_seconds(key.expires_ns),
        revoked_at=_maybe_seconds(key.revoked_ns),
    )


def made_key(new: NewKey) -> MadeKey:
    """A new key, this once with its secret."""
    return MadeKey(shown_key(new.key), new.secret)


def shown_change(row: Audited) -> ShownChange:
    """A row of the audit log as it is given out."""
    at, detail = _seconds(row.at_ns), json.loads(row.detail)
    return ShownChange(row.id, at, row.actor, row.action, row.target, detail)


def _shown_limits(limits: LimitsSpec) -> dict[str, Any]:
    return limits.model_dump(mode="json", exclude_none=True)


def _seconds(ns: int) -> int:
    return ns // 1_000_000_000


def _maybe_seconds(ns: int | None) -> int | None:
    return None if ns is None else _seconds(ns)
