"""`ridgeline tenants`: who may ask, with which limits and budget."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeline.cli.databases import (
    actor,
    checked,
    database_option,
    echo_json,
    json_option,
    opened,
    same_place,
    spec_argument,
)
from ridgeline.cli.limit_options import limit_options, limits_given, limits_in_words
from ridgeline.cli.tables import console, print_table
from ridgeline.errors import SpecError
from ridgeline.serving.tenant_spec import TenantSpec

if TYPE_CHECKING:  # the extra [gateway] is needed only once a command runs
    from ridgeline.serving.gateway.tenant_rows import Tenant

_class_option = click.option(
    "--class",
    "priority_class",
    type=click.Choice(["system", "interactive", "default", "bulk"]),
    help="Who goes first.",
)
_weight_option = click.option("--weight", type=float, help="Share among the tenants of a class.")


@click.group()
def tenants() -> None:
    """List and change the tenants in a platform's database.

    SPEC is the platform.yaml whose database is meant; without it the default platform's. A gateway
    that runs sees a change within a second. Tenants that platform.yaml names are changed there.
    """


@tenants.command("list")
@spec_argument
@database_option
@json_option
def list_tenants(spec: Path | None, database: str | None, as_json: bool) -> None:
    """Show every tenant with its limits. Exit status 1 where there is none."""
    with opened(spec, database) as place:
        found = place.list_tenants(most=100_000)
    if as_json:
        from ridgeline.serving.gateway.admin_wire import shown_tenant

        echo_json([shown_tenant(one) for one in found])
    elif not found:
        there = same_place(spec, database)
        click.echo(f"No tenants yet. Add one:\n  ridgeline tenants add NAME{there}")
    else:
        headings = ("tenant", "class", "weight", "state", "ruled by", "limits")
        print_table(console(), headings, [_row(one) for one in found], first=5)
    raise SystemExit(0 if found else 1)


@tenants.command()
@click.argument("name")
@spec_argument
@_class_option
@_weight_option
@limit_options
@database_option
@json_option
def add(
    name: str,
    spec: Path | None,
    priority_class: str | None,
    weight: float | None,
    database: str | None,
    as_json: bool,
    **limits: str | None,
) -> None:
    """Add a tenant. It needs a key next: ridgeline keys create NAME [SPEC]."""
    given = {"name": name, "limits": limits_given(limits), **_given(priority_class, weight)}
    tenant = checked(TenantSpec, given, argument="name")
    with opened(spec, database, create=True) as place:
        made = place.create(tenant, actor=actor())
    then = f"ridgeline keys create {name}{same_place(spec, database)}"
    _tell(made, as_json, f"{name} is added. Give it a key:\n  {then}")


@tenants.command()
@click.argument("name")
@spec_argument
@_class_option
@_weight_option
@limit_options
@click.option("--enable", is_flag=True, help="Let a disabled tenant in again.")
@database_option
@json_option
def change(
    name: str,
    spec: Path | None,
    priority_class: str | None,
    weight: float | None,
    enable: bool,
    database: str | None,
    as_json: bool,
    **limits: str | None,
) -> None:
    """Change what the options name; "none" takes a limit away."""
    given = _given(priority_class, weight)
    if named := limits_given(limits):
        given["limits"] = named
    if enable:
        given["disabled"] = False
    if not given:
        remedy = "an option, e.g. --weight 2: ridgeline tenants change --help"
        raise SpecError("names nothing to change", where=f"tenants change {name}", remedy=remedy)
    with opened(spec, database) as place:
        from ridgeline.serving.gateway.tenants import TenantChange

        changed = place.change(name, checked(TenantChange, given, argument="name"), actor=actor())
    _tell(changed, as_json, f"{name}: {limits_in_words(changed.limits)}")


@tenants.command()
@click.argument("name")
@spec_argument
@database_option
@json_option
def disable(name: str, spec: Path | None, database: str | None, as_json: bool) -> None:
    """Refuse a tenant's keys from now on; what it used stays on record."""
    with opened(spec, database) as place:
        disabled = place.disable(name, actor=actor())
    undo = f"ridgeline tenants change {name}{same_place(spec, database)} --enable"
    _tell(disabled, as_json, f"{name} is disabled. To undo:\n  {undo}")


def _given(priority_class: str | None, weight: float | None) -> dict[str, Any]:
    given = {"priority_class": priority_class, "weight": weight}
    return {name: value for name, value in given.items() if value is not None}


def _row(tenant: "Tenant") -> tuple[str, ...]:
    state = "active" if tenant.disabled_ns is None else "disabled"
    ruler = "platform.yaml" if tenant.origin == "spec" else "admin"
    limits, weight = limits_in_words(tenant.limits), f"{tenant.weight:g}"
    return (tenant.name, tenant.priority_class, weight, state, ruler, limits)


def _tell(tenant: Any, as_json: bool, words: str) -> None:
    if as_json:
        from ridgeline.serving.gateway.admin_wire import shown_tenant

        echo_json(shown_tenant(tenant))
    else:
        click.echo(words)
