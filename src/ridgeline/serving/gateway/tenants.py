"""Tenants and their keys in the database: made, changed, read, and each change in the audit log.

A change and its audit row are one transaction. Of a key only the SHA-256 is kept: it has 256 random
bits, so nobody finds it by trying, and a slow hash would only make requests slow. Called by the
admin API, the command line and, for the tenants of platform.yaml, at the gateway's start.
"""

import hashlib
import json
import secrets
import string
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection, Engine, Select, insert, select, update

from ridgeline.errors import SpecError
from ridgeline.serving.gateway.tenant_rows import (
    Audited,
    Key,
    Role,
    Tenant,
    key_of,
    key_values,
    limits_text,
    shown_values,
    spec_values,
    tenant_of,
    tenant_values,
)
from ridgeline.serving.spec_part import Part
from ridgeline.serving.tenant_spec import TENANT_NAME, LimitsSpec, PriorityClass, TenantSpec
from ridgeline.store.database import reading, writing
from ridgeline.store.migrate import lock
from ridgeline.store.tables import api_keys, audit, tenants

#: Whom the audit log names for what platform.yaml says.
PLATFORM = "platform.yaml"
KEY_PREFIX = "rl-"
_ALPHABET = string.ascii_letters + string.digits
_CHARACTERS = 43  # of 62 kinds: 256 bits
#: What a text may hold that is stored and shown: no control characters.
PLAIN = r"^[^\x00-\x1f\x7f]*$"
#: A model's name, as clients call it.
ModelName = Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN)]


class NotThereError(SpecError):
    """A name or id that no tenant or key has."""


class ConflictError(SpecError):
    """A change that what is there does not allow."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key with its secret, which is nowhere else and is not shown again."""

    key: Key
    secret: str = field(repr=False)


class KeySpec(Part):
    """A key to be made."""

    tenant: str = Field(pattern=TENANT_NAME, max_length=63)
    name: str = Field("", max_length=63, pattern=PLAIN)
    role: Role = "user"
    models: tuple[ModelName, ...] | None = Field(None, min_length=1, max_length=100)
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    expires_ns: int | None = Field(None, ge=0, lt=2**63)


class TenantChange(Part):
    """What is to change of a tenant; what is not set stays, also within `limits`."""

    priority_class: PriorityClass = Field("default", alias="class")
    weight: float = Field(1.0, gt=0, le=1000)
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    disabled: bool = False


class Tenants:
    """The tenants and keys of one database. Every method may raise StoreError."""

    def __init__(self, engine: Engine, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.engine = engine
        self._now_ns = now_ns

    def sync(self, specs: Iterable[TenantSpec]) -> None:
        """Make the database's tenants what platform.yaml says; those it no longer names stop.

        Tenants of the admin API stay as they are, unless platform.yaml now names them.
        """
        wanted = {spec.name: spec for spec in specs}
        with writing(self.engine) as connection:
            lock(connection)  # workers that start together: the first one writes
            there = {one.name: one for one in map(tenant_of, connection.execute(select(tenants)))}
            for name, spec in wanted.items():
                if name in there:
                    values = {**spec_values(spec), "origin": "spec", "disabled_ns": None}
                    self._update(connection, there[name], values, PLATFORM)
                else:
                    self._insert(connection, spec, "spec", PLATFORM)
            for name, tenant in there.items():
                if tenant.origin == "spec" and name not in wanted:
                    values = {"origin": "admin", "disabled_ns": self._now_ns()}
                    self._update(connection, tenant, values, PLATFORM)

    def create(self, spec: TenantSpec, *, actor: str) -> Tenant:
        """A new tenant. ConflictError where the name is taken."""
        with writing(self.engine) as connection:
            lock(connection)
            if _found(connection, spec.name) is not None:
                remedy = "change that one, or choose another name"
                raise ConflictError(f"there is a tenant {spec.name!r}", where="name", remedy=remedy)
            return self._insert(connection, spec, "admin", actor)

    def change(self, name: str, change: TenantChange, *, actor: str) -> Tenant:
        """A tenant with what `change` sets. ConflictError where platform.yaml rules it."""
        with writing(self.engine) as connection:
            lock(connection)
            tenant = _existing(connection, name)
            if tenant.origin == "spec":
                remedy = "edit it there and run `ridgeline up` again, or revoke its keys"
                raise ConflictError(
                    f"{PLATFORM} rules tenant {name!r}", where="name", remedy=remedy
                )
            return self._update(connection, tenant, self._changed(tenant, change), actor)

    def disable(self, name: str, *, actor: str) -> Tenant:
        """Stop a tenant: its keys are refused within a second, what it used stays on record."""
        return self.change(name, TenantChange(disabled=True), actor=actor)

    def get(self, name: str) -> Tenant:
        """One tenant, or NotThereError."""
        with reading(self.engine) as connection:
            return _existing(connection, name)

    def list_tenants(self, *, after: str = "", most: int = 1000) -> Sequence[Tenant]:
        """Tenants in the order of their names, from the one behind `after`."""
        query = select(tenants).where(tenants.c.name > after).order_by(tenants.c.name)
        with reading(self.engine) as connection:
            return [tenant_of(row) for row in connection.execute(query.limit(most))]

    def create_key(self, spec: KeySpec, *, actor: str) -> NewKey:
        """A new key of a tenant, with the secret that is shown this once."""
        secret = new_secret()
        key = Key(
            id=f"key-{secrets.token_hex(12)}",
            tenant=spec.tenant,
            hint=f"{secret[:6]}...{secret[-4:]}",
            name=spec.name,
            role=spec.role,
            models=spec.models,
            limits=spec.limits,
            created_ns=self._now_ns(),
            expires_ns=spec.expires_ns,
            revoked_ns=None,
        )
        with writing(self.engine) as connection:
            lock(connection)
            if _existing(connection, spec.tenant).disabled_ns is not None:
                problem = f"tenant {spec.tenant!r} is disabled"
                raise ConflictError(problem, where="tenant", remedy="enable it first")
            connection.execute(insert(api_keys).values(key_values(key, digest(secret))))
            made = {"tenant": key.tenant, "hint": key.hint, "name": key.name, "role": key.role}
            self._note(connection, actor, "key.create", f"key:{key.id}", made)
        return NewKey(key, secret)

    def revoke(self, key_id: str, *, actor: str) -> Key:
        """Stop a key for good: it is refused within a second. Once more does nothing."""
        with writing(self.engine) as connection:
            lock(connection)
            key = _existing_key(connection, key_id)
            if key.revoked_ns is None:
                query = update(api_keys).where(api_keys.c.id == key_id)
                connection.execute(query.values(revoked_ns=self._now_ns()))
                told = {"tenant": key.tenant, "hint": key.hint, "name": key.name}
                self._note(connection, actor, "key.revoke", f"key:{key_id}", told)
            return _existing_key(connection, key_id)

    def key(self, key_id: str) -> Key:
        """One key, or NotThereError."""
        with reading(self.engine) as connection:
            return _existing_key(connection, key_id)

    def list_keys(
        self, *, tenant: str | None = None, after: str = "", most: int = 1000
    ) -> Sequence[Key]:
        """Keys in the order of their ids, from the one behind `after`; of one tenant, or of all."""
        query = select(api_keys).where(api_keys.c.id > after).order_by(api_keys.c.id).limit(most)
        if tenant is not None:
            query = query.where(api_keys.c.tenant == tenant)
        with reading(self.engine) as connection:
            return [key_of(row) for row in connection.execute(query)]

    def audited(self, *, before: int | None = None, most: int = 100) -> Sequence[Audited]:
        """The audit log, newest first, from the row before `before`."""
        query: Select[Any] = select(audit).order_by(audit.c.id.desc()).limit(most)
        if before is not None:
            query = query.where(audit.c.id < before)
        with reading(self.engine) as connection:
            return [Audited(*row) for row in connection.execute(query)]

    def _changed(self, tenant: Tenant, change: TenantChange) -> dict[str, Any]:
        """The columns that a change sets."""
        given = change.model_fields_set
        values: dict[str, Any] = {
            name: getattr(change, name) for name in ("priority_class", "weight") if name in given
        }
        if "limits" in given:
            kept = tenant.limits.model_dump()
            wanted = change.limits.model_dump(exclude_unset=True)
            values["limits"] = limits_text(LimitsSpec.model_validate({**kept, **wanted}))
        if "disabled" in given:
            was = tenant.disabled_ns
            values["disabled_ns"] = (was or self._now_ns()) if change.disabled else None
        return values

    def _insert(self, connection: Connection, spec: TenantSpec, origin: str, actor: str) -> Tenant:
        began = {"origin": origin, "created_ns": self._now_ns()}
        values = {"name": spec.name, **spec_values(spec), **began}
        connection.execute(insert(tenants).values(values))
        self._note(connection, actor, "tenant.create", f"tenant:{spec.name}", shown_values(values))
        return _existing(connection, spec.name)

    def _update(
        self, connection: Connection, tenant: Tenant, values: dict[str, Any], actor: str
    ) -> Tenant:
        before = tenant_values(tenant)
        changed = {name: value for name, value in values.items() if before[name] != value}
        if changed:
            where = tenants.c.name == tenant.name
            connection.execute(update(tenants).where(where).values(changed))
            was, now = shown_values(before), shown_values(changed)
            detail = {name: [was[name], value] for name, value in now.items()}
            self._note(connection, actor, "tenant.change", f"tenant:{tenant.name}", detail)
        return _existing(connection, tenant.name)

    def _note(
        self, connection: Connection, actor: str, action: str, target: str, detail: dict[str, Any]
    ) -> None:
        connection.execute(
            insert(audit).values(
                at_ns=self._now_ns(),
                actor=actor[:80],
                action=action,
                target=target,
                detail=json.dumps(detail),
            )
        )


def new_secret() -> str:
    """A key that nobody can guess: `rl-` and 256 bits as letters and digits."""
    return KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_CHARACTERS))


def is_secret(text: str) -> bool:
    """Whether a text has the form of a key that was made here."""
    body = text.removeprefix(KEY_PREFIX)
    return (
        len(text) == len(KEY_PREFIX) + _CHARACTERS
        and len(body) == _CHARACTERS
        and body.isascii()
        and body.isalnum()
    )


def digest(secret: str) -> str:
    """What is stored of a key, and what it is found by."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _found(connection: Connection, name: str) -> Tenant | None:
    row = connection.execute(select(tenants).where(tenants.c.name == name)).first()
    return None if row is None else tenant_of(row)


def _existing(connection: Connection, name: str) -> Tenant:
    tenant = _found(connection, name)
    if tenant is None:
        remedy = "ridgeline tenants list shows those that there are"
        raise NotThereError(f"there is no tenant {name!r}", where="tenant", remedy=remedy)
    return tenant


def _existing_key(connection: Connection, key_id: str) -> Key:
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).first()
    if row is None:
        remedy = "ridgeline keys list shows those that there are"
        raise NotThereError(f"there is no key {key_id!r}", where="key", remedy=remedy)
    return key_of(row)
