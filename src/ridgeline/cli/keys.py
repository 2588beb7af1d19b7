"""`ridgeline keys`: make, list and revoke the keys of tenants."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ridgeline.cli.databases import (
    actor,
    checked,
    database_option,
    echo_json,
    json_option,
    opened,
    same_place,
    shown_time,
    spec_argument,
)
from ridgeline.cli.limit_options import limit_options, limits_given, limits_in_words
from ridgeline.cli.tables import console, print_table
from ridgeline.errors import SpecError
from ridgeline.spec import load
from ridgeline.units import parse_seconds

if TYPE_CHECKING:  # the extra [gateway] is needed only once a command runs
    from ridgeline.serving.gateway.tenant_rows import Key


@click.group()
def keys() -> None:
    """Make, list and revoke API keys in a platform's database.

    SPEC is the platform.yaml whose database is meant; without it the default platform's. A gateway
    that runs sees a change within a second.
    """


@keys.command("list")
@spec_argument
@click.option("--tenant", help="Of this tenant only.")
@database_option
@json_option
def list_keys(spec: Path | None, tenant: str | None, database: str | None, as_json: bool) -> None:
    """Show the keys, by their beginnings and ends. Exit status 1 where there is none."""
    with opened(spec, database) as place:
        found = place.list_keys(tenant=tenant, most=100_000)
    if as_json:
        from ridgeline.serving.gateway.admin_wire import shown_key

        echo_json([shown_key(one) for one in found])
    elif not found:
        there = same_place(spec, database)
        click.echo(f"No keys yet. Make one:\n  ridgeline keys create TENANT{there}")
    else:
        _print(sorted(found, key=lambda one: (one.tenant, one.created_ns)))
    raise SystemExit(0 if found else 1)


@keys.command()
@click.argument("tenant")
@spec_argument
@click.option("--name", default="", help="What a person calls it, e.g. laptop.")
@click.option(
    "--role",
    type=click.Choice(["user", "viewer", "admin"]),
    default="user",
    help="user: asks models. viewer: reads the admin API. admin: changes tenants and keys.",
)
@click.option("--model", "models", multiple=True, help="Only this model; may be given again.")
@click.option("--expires", metavar="IN", help="Stops after so long, e.g. 90d or 12h.")
@limit_options
@database_option
@json_option
def create(
    tenant: str,
    spec: Path | None,
    name: str,
    role: str,
    models: tuple[str, ...],
    expires: str | None,
    database: str | None,
    as_json: bool,
    **limits: str | None,
) -> None:
    """Make a key and print it, this once: only its SHA-256 is kept.

    With --json the secret is `.secret`, and the id that `keys revoke` takes is `.key.id`.
    """
    given = {
        "tenant": tenant,
        "name": name,
        "role": role,
        "models": models or None,
        "limits": limits_given(limits),
        "expires_ns": _expires_ns(expires),
    }
    for unknown in _unserved(models, spec):
        click.echo(f"ridgeline: warning: {unknown}", err=True)
    with opened(spec, database) as place:
        from ridgeline.serving.gateway.tenants import KeySpec

        made = place.create_key(checked(KeySpec, given, argument="tenant"), actor=actor())
    if as_json:
        from ridgeline.serving.gateway.admin_wire import made_key

        echo_json(made_key(made))
    else:
        click.echo(made.secret)
        click.echo(f"{made.key.id} of {tenant}. Keep it: it is not shown again.", err=True)


@keys.command()
@click.argument("key_id", metavar="KEY_ID")
@spec_argument
@database_option
@json_option
def revoke(key_id: str, spec: Path | None, database: str | None, as_json: bool) -> None:
    """Stop a key for good. `ridgeline keys list` shows the ids."""
    with opened(spec, database) as place:
        key = place.revoke(key_id, actor=actor())
    if as_json:
        from ridgeline.serving.gateway.admin_wire import shown_key

        echo_json(shown_key(key))
    else:
        click.echo(f"{key_id} ({key.hint}) of {key.tenant} is revoked.")


def _expires_ns(expires: str | None) -> int | None:
    if expires is None:
        return None
    try:
        lives_s = parse_seconds(expires)
    except ValueError as error:
        raise SpecError(str(error), where="--expires", remedy="90d, 12h") from error
    if not 0 < lives_s < 1e9:
        raise SpecError(f"{expires!r} is out of range", where="--expires", remedy="1s to 30 years")
    return time.time_ns() + round(lives_s * 1e9)


def _unserved(models: tuple[str, ...], spec: Path | None) -> list[str]:
    """What to say of models that SPEC does not serve; servers named "*" may serve any."""
    if spec is None or not models:
        return []
    served = [one.name for one in load(spec).models]
    if "*" in served:
        return []
    there = ", ".join(served)
    return [
        f"{spec} serves no model {name!r}, only: {there}" for name in models if name not in served
    ]


def _print(found: "list[Key]") -> None:
    headings = ("key", "begins...ends", "tenant", "name", "role", "state", "models", "limits")
    print_table(console(), headings, [_row(one) for one in found], first=4)


def _row(key: "Key") -> tuple[str, ...]:
    models = ", ".join(key.models) if key.models is not None else "all"
    who = (key.id, key.hint, key.tenant, key.name)
    return (*who, key.role, _state(key), models, limits_in_words(key.limits))


def _state(key: "Key") -> str:
    if key.revoked_ns is not None:
        return f"revoked {shown_time(key.revoked_ns)}"
    if key.expires_ns is None:
        return "active"
    word = "expired" if key.expires_ns <= time.time_ns() else "until"
    return f"{word} {shown_time(key.expires_ns)}"
