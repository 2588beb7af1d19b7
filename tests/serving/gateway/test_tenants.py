"""Tenants and keys in the database, and the audit log of what became of them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from sqlalchemy import Engine, event, select

from ridgeline.errors import SpecError
from ridgeline.serving.gateway.tenants import (
    ConflictError,
    KeySpec,
    NotThereError,
    TenantChange,
    Tenants,
    is_secret,
    new_secret,
)
from ridgeline.serving.tenant_spec import LimitsSpec, TenantSpec
from ridgeline.store.database import open_store, reading
from ridgeline.store.tables import api_keys, metadata

CHAT = TenantSpec.model_validate(
    {
        "name": "chat",
        "class": "interactive",
        "weight": 2.5,
        "limits": {"output_tokens_per_minute": "2M", "concurrent": 4},
        "budget": {"usd": "99.95", "per": "day", "timezone": "Europe/Berlin"},
    }
)


@pytest.fixture
def tenants(store: Engine) -> Tenants:
    ticks = iter(range(1000, 10_000))
    return Tenants(store, now_ns=lambda: next(ticks))


def test_a_tenant_is_kept_as_it_was_made(tenants: Tenants):
    made = tenants.create(CHAT, actor="cli:anna")
    assert made == tenants.get("chat")
    assert (made.priority_class, made.weight, made.origin) == ("interactive", 2.5, "admin")
    assert made.limits == CHAT.all_limits
    assert made.limits.budget is not None
    assert made.limits.budget.usd == Decimal("99.95")
    assert made.disabled_ns is None


def test_a_name_is_given_once(tenants: Tenants):
    tenants.create(CHAT, actor="a")
    with pytest.raises(ConflictError, match="there is a tenant 'chat'") as told:
        tenants.create(CHAT, actor="a")
    assert told.value.where == "name"
    assert len(tenants.audited()) == 1


def test_a_change_leaves_what_it_does_not_name(tenants: Tenants):
    tenants.create(CHAT, actor="a")
    limits = LimitsSpec.model_validate({"concurrent": None, "requests_per_minute": 7})
    changed = tenants.change("chat", TenantChange(limits=limits), actor="b")
    assert changed.limits.requests_per_minute == 7
    assert changed.limits.concurrent is None
    assert changed.limits.output_tokens_per_minute == 2_000_000
    assert changed.limits.budget == CHAT.budget
    assert (changed.weight, changed.priority_class) == (2.5, "interactive")


def test_a_tenant_is_disabled_and_enabled_again(tenants: Tenants):
    tenants.create(CHAT, actor="a")
    first = tenants.disable("chat", actor="a")
    assert first.disabled_ns is not None
    assert tenants.disable("chat", actor="a") == first
    assert tenants.change("chat", TenantChange(disabled=False), actor="a").disabled_ns is None


def test_nobody_changes_a_tenant_that_is_not_there(tenants: Tenants):
    with pytest.raises(NotThereError, match="no tenant 'nobody'"):
        tenants.change("nobody", TenantChange(weight=1.0), actor="a")
    with pytest.raises(NotThereError, match="no tenant 'nobody'"):
        tenants.create_key(KeySpec(tenant="nobody"), actor="a")
    with pytest.raises(NotThereError, match="no key 'key-0'"):
        tenants.revoke("key-0", actor="a")
    assert tenants.audited() == []


def test_every_change_is_in_the_audit_log_with_what_was_before(tenants: Tenants):
    tenants.create(CHAT, actor="cli:anna")
    tenants.change("chat", TenantChange(weight=1.0), actor="key:k")
    tenants.change("chat", TenantChange(weight=1.0), actor="key:k")  # changes nothing
    new = tenants.create_key(KeySpec(tenant="chat", name="laptop"), actor="cli:anna")
    tenants.revoke(new.key.id, actor="cli:bob")
    tenants.revoke(new.key.id, actor="cli:bob")
    rows = [(row.actor, row.action, row.target) for row in reversed(tenants.audited())]
    assert rows == [
        ("cli:anna", "tenant.create", "tenant:chat"),
        ("key:k", "tenant.change", "tenant:chat"),
        ("cli:anna", "key.create", f"key:{new.key.id}"),
        ("cli:bob", "key.revoke", f"key:{new.key.id}"),
    ]
    assert json.loads(tenants.audited()[2].detail) == {"weight": [2.5, 1.0]}
    times = [row.at_ns for row in tenants.audited()]
    assert times == sorted(times, reverse=True)


def test_the_audit_log_is_paged_from_the_newest(tenants: Tenants):
    for n in range(5):
        tenants.create(CHAT.model_copy(update={"name": f"t{n}"}), actor="a")
    first = tenants.audited(most=2)
    then = tenants.audited(before=first[-1].id, most=2)
    assert [row.target for row in (*first, *then)] == [f"tenant:t{n}" for n in (4, 3, 2, 1)]


def test_a_change_whose_audit_row_fails_does_not_happen(tenants: Tenants, store: Engine):
    def fail(*given: object) -> None:
        if "INSERT INTO audit" in str(given[2]):
            raise RuntimeError("no audit")

    event.listen(store, "before_cursor_execute", fail)
    with pytest.raises(RuntimeError, match="no audit"):
        tenants.create(CHAT, actor="a")
    event.remove(store, "before_cursor_execute", fail)
    assert tenants.list_tenants() == []


def test_a_secret_is_nowhere_in_the_database(tenants: Tenants, store: Engine):
    tenants.create(CHAT, actor="a")
    new = tenants.create_key(KeySpec(tenant="chat", name="laptop"), actor="a")
    assert re.fullmatch(r"rl-[0-9A-Za-z]{43}", new.secret)
    with reading(store) as connection:
        everything = str([connection.execute(select(t)).all() for t in metadata.sorted_tables])
    assert new.secret not in everything
    assert new.secret[6:-4] not in everything
    assert new.key.hint == f"{new.secret[:6]}...{new.secret[-4:]}"
    assert new.secret not in repr(new)


def test_secrets_differ_and_have_their_form():
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(is_secret(one) for one in secrets)
    for wrong in ("", "rl-", "rl-" + "a" * 42, "rl-" + "a" * 44, "rl-" + "é" * 43, "a" * 46):
        assert not is_secret(wrong)


def test_a_key_keeps_its_scope_limits_and_expiry(tenants: Tenants):
    tenants.create(CHAT, actor="a")
    spec = KeySpec(
        tenant="chat",
        role="viewer",
        models=("small", "large"),
        limits=LimitsSpec(concurrent=1),
        expires_ns=5,
    )
    key = tenants.create_key(spec, actor="a").key
    assert tenants.key(key.id) == key
    assert tenants.list_keys(tenant="chat") == [key]
    assert tenants.list_keys(tenant="other") == []
    assert (key.models, key.role, key.limits.concurrent, key.expires_ns, key.revoked_ns) == (
        ("small", "large"), "viewer", 1, 5, None
    )  # fmt: skip


def test_a_disabled_tenant_gets_no_key(tenants: Tenants):
    tenants.create(CHAT, actor="a")
    tenants.disable("chat", actor="a")
    with pytest.raises(ConflictError, match="is disabled"):
        tenants.create_key(KeySpec(tenant="chat"), actor="a")


def test_lists_are_paged_in_order(tenants: Tenants, store: Engine):
    for name in ("b", "a", "c"):
        tenants.create(CHAT.model_copy(update={"name": name}), actor="x")
        tenants.create_key(KeySpec(tenant=name), actor="x")
    assert [one.name for one in tenants.list_tenants(most=2)] == ["a", "b"]
    assert [one.name for one in tenants.list_tenants(after="b")] == ["c"]
    ids = [key.id for key in tenants.list_keys()]
    assert ids == sorted(ids)
    assert [key.id for key in tenants.list_keys(after=ids[0], most=1)] == ids[1:2]


def test_platform_yaml_rules_its_tenants(tenants: Tenants):
    tenants.create(CHAT.model_copy(update={"name": "mine"}), actor="a")
    tenants.sync([CHAT, CHAT.model_copy(update={"name": "batch"})])
    assert {one.name: one.origin for one in tenants.list_tenants()} == {
        "mine": "admin", "chat": "spec", "batch": "spec",
    }  # fmt: skip
    with pytest.raises(ConflictError, match=r"platform.yaml rules tenant 'chat'") as told:
        tenants.change("chat", TenantChange(weight=3.0), actor="a")
    assert "edit it there" in told.value.remedy
    tenants.sync([CHAT.model_copy(update={"weight": 9.0})])
    assert tenants.get("chat").weight == 9.0
    assert tenants.get("batch").disabled_ns is not None
    assert tenants.get("mine").disabled_ns is None
    tenants.sync([CHAT, CHAT.model_copy(update={"name": "batch"})])
    assert tenants.get("batch").disabled_ns is None


def test_the_same_platform_again_changes_nothing(tenants: Tenants):
    tenants.sync([CHAT])
    before = (tenants.list_tenants(), tenants.audited())
    tenants.sync([CHAT])
    assert (tenants.list_tenants(), tenants.audited()) == before


def test_platform_yaml_takes_over_a_tenant_of_the_same_name_with_its_keys(tenants: Tenants):
    tenants.create(CHAT.model_copy(update={"weight": 1.0}), actor="a")
    key = tenants.create_key(KeySpec(tenant="chat"), actor="a").key
    tenants.sync([CHAT])
    assert (tenants.get("chat").origin, tenants.get("chat").weight) == ("spec", 2.5)
    assert tenants.list_keys(tenant="chat") == [key]


def test_the_digest_column_is_all_that_a_key_is_found_by(tenants: Tenants, store: Engine):
    tenants.create(CHAT, actor="a")
    tenants.create_key(KeySpec(tenant="chat"), actor="a")
    with reading(store) as connection:
        (digest,) = connection.execute(select(api_keys.c.digest)).scalars()
    assert re.fullmatch("[0-9a-f]{64}", digest)


def test_of_eight_who_make_the_same_tenant_one_does(tenants: Tenants):
    def make(_: int) -> str:
        try:
            return tenants.create(CHAT, actor="a").name
        except ConflictError:
            return ""

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(make, range(8))) == [""] * 7 + ["chat"]
    assert len(tenants.audited()) == 1


def test_workers_that_start_together_write_platform_yaml_once(store: Engine, store_url: str):
    engines = [open_store(store_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda engine: Tenants(engine).sync([CHAT]), engines))
    for engine in engines:
        engine.dispose()
    assert [row.action for row in Tenants(store).audited()] == ["tenant.create"]


@pytest.mark.parametrize(
    "wrong", [{"tenant": "A"}, {"name": "a\x00"}, {"models": []}, {"models": ["a\n"]}, {"x": 1}]
)
def test_a_key_of_a_wrong_form_is_refused(wrong: dict[str, object]):
    with pytest.raises(ValueError, match="validation error"):
        KeySpec.model_validate({"tenant": "chat", **wrong})


def test_refusals_are_errors_that_the_command_line_prints():
    assert issubclass(NotThereError, SpecError)
    assert issubclass(ConflictError, SpecError)
