"""Tenants, keys and the audit log as values, and as the rows that they are in the database.

Called by the repository (`tenants`), by `callers` and by what shows them.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Row

from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.tenant_spec import LimitsSpec, PriorityClass, TenantSpec

Role = Literal["user", "viewer", "admin"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant as it stands. `origin`: "spec" where platform.yaml rules it, else "admin"."""

    name: str
    priority_class: PriorityClass
    weight: float
    limits: LimitsSpec
    origin: Literal["spec", "admin"]
    created_ns: int
    disabled_ns: int | None


@dataclass(frozen=True, slots=True)
class Key:
    """All of a key but its secret. `models` None: every model."""

    id: str
    tenant: str
    hint: str
    name: str
    role: Role
    models: tuple[str, ...] | None
    limits: LimitsSpec
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None


@dataclass(frozen=True, slots=True)
class Audited:
    """A row of the audit log: who did what to whom, and the JSON text of what changed."""

    id: int
    at_ns: int
    actor: str
    action: str
    target: str
    detail: str


def limits_from(text: str) -> Limits:
    """Limits from a column, for the policy."""
    return LimitsSpec.model_validate_json(text).limits


def spec_values(spec: TenantSpec) -> dict[str, Any]:
    """The columns that a tenant's spec rules."""
    limits = limits_text(spec.all_limits)
    return {"priority_class": spec.priority_class, "weight": spec.weight, "limits": limits}


def tenant_values(tenant: Tenant) -> dict[str, Any]:
    """The columns of a tenant that may change."""
    return {
        "priority_class": tenant.priority_class,
        "weight": tenant.weight,
        "limits": limits_text(tenant.limits),
        "origin": tenant.origin,
        "disabled_ns": tenant.disabled_ns,
    }


def key_values(key: Key, digest: str) -> dict[str, Any]:
    """The columns of a new key."""
    return {
        "id": key.id,
        "tenant": key.tenant,
        "digest": digest,
        "hint": key.hint,
        "name": key.name,
        "role": key.role,
        "models": json.dumps(key.models) if key.models is not None else None,
        "limits": limits_text(key.limits),
        "created_ns": key.created_ns,
        "expires_ns": key.expires_ns,
    }


def limits_text(limits: LimitsSpec) -> str:
    """Limits as a column: equal limits are equal texts."""
    return limits.model_dump_json(exclude_none=True)


def shown_values(values: dict[str, Any]) -> dict[str, Any]:
    """Columns as the audit log shows them: limits are a tree, not a text."""
    return {
        name: json.loads(value) if name == "limits" else value for name, value in values.items()
    }


def tenant_of(row: Row[Any]) -> Tenant:
    """A tenant from its row."""
    return Tenant(
        name=row.name,
        priority_class=row.priority_class,
        weight=row.weight,
        limits=LimitsSpec.model_validate_json(row.limits),
        origin=row.origin,
        created_ns=row.created_ns,
        disabled_ns=row.disabled_ns,
    )


def key_of(row: Row[Any]) -> Key:
    """A key from its row, which holds its digest too."""
    return Key(
        id=row.id,
        tenant=row.tenant,
        hint=row.hint,
        name=row.name,
        role=row.role,
        models=tuple(json.loads(row.models)) if row.models is not None else None,
        limits=LimitsSpec.model_validate_json(row.limits),
        created_ns=row.created_ns,
        expires_ns=row.expires_ns,
        revoked_ns=row.revoked_ns,
    )
