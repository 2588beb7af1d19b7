"""`ridgeline tenants`: who may ask, with which limits and budget."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ridgeline.cli.databases import (
    actor,
    checked,
    database_option,
    echo_json,
    json_option,
    opened,
    spec_argument,
)
from ridgeline.cli.limit_options import limit_options, limits_given, limits_in_words
from ridgeline.errors import SpecError
from ridgeline.serving.tenant_spec import TenantSpec

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
        click.echo("No tenants yet. Add one:\n  ridgeline tenants add NAME")
    else:
        table = Table(box=None, pad_edge=False)
        for heading in ("tenant", "class", "weight", "state", "ruled by", "limits"):
            table.add_column(heading, overflow="fold")
        for one in found:
            state = "active" if one.disabled_ns is None else "disabled"
            ruler = "platform.yaml" if one.origin == "spec" else "admin"
            limits = limits_in_words(one.limits)
            weight = f"{one.weight:g}"
            table.add_row(one.name, one.priority_class, weight, state, ruler, limits)
        Console(highlight=False).print(table)
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
    """Add a tenant. It needs a key next: ridgeline keys create NAME."""
    given = {"name": name, "limits": limits_given(limits), **_given(priority_class, weight)}
    tenant = checked(TenantSpec, given, argument="name")
    with opened(spec, database, create=True) as place:
        made = place.create(tenant, actor=actor())
    _tell(made, as_json, f"{name} is added. Give it a key:\n  ridgeline keys create {name}")


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
        raise SpecError("names nothing to change", where=f"tenants change {name}", remedy="--help")
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
    _tell(
        disabled, as_json, f"{name} is disabled. To undo: ridgeline tenants change {name} --enable"
    )


def _given(priority_class: str | None, weight: float | None) -> dict[str, Any]:
    given = {"priority_class": priority_class, "weight": weight}
    return {name: value for name, value in given.items() if value is not None}


def _tell(tenant: Any, as_json: bool, words: str) -> None:
    if as_json:
        from ridgeline.serving.gateway.admin_wire import shown_tenant

        echo_json(shown_tenant(tenant))
    else:
        click.echo(words)
