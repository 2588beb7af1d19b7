"""Which database a command means, opened, and what the commands on it share.

A command that is printed as the next one names the same place: `same_place`, `placed`.
"""

import getpass
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from pydantic import BaseModel, ValidationError

from ridgeline.cli.extras import needs
from ridgeline.errors import RidgelineError, SpecError
from ridgeline.serving.gateway.place import database_url
from ridgeline.serving.tenant_spec import TENANT_NAME
from ridgeline.spec import load

if TYPE_CHECKING:  # the extra [gateway] is needed only once a command runs
    from ridgeline.serving.gateway.tenants import Tenants

M = TypeVar("M", bound=BaseModel)

#: The last argument of each command: whose database.
spec_argument = click.argument(
    "spec", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
database_option = click.option(
    "--database", metavar="URL", help="sqlite:///FILE or postgresql://…; else SPEC's."
)
json_option = click.option("--json", "as_json", is_flag=True, help="The same as JSON.")


def named_url(spec: Path | None, database: str | None) -> str:
    """The database of `--database`, else of a platform.yaml, else of the default platform."""
    if database is not None:
        if spec is not None:
            remedy = "one of them"
            raise SpecError("SPEC names a database already", where="--database", remedy=remedy)
        return database
    if spec is None:
        return database_url("platform", None)
    platform = load(spec)
    return database_url(platform.name, platform.gateway.database)


def same_place(spec: Path | None, database: str | None) -> str:
    """What a next command needs to mean the same database, with a space before; "" for none.

    A URL with a password is not printed again.
    """
    words = [] if spec is None else [shlex.quote(str(spec))]
    if database is not None:
        words += ["--database", "URL" if _has_password(database) else shlex.quote(database)]
    return "".join(f" {word}" for word in words)


def _has_password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None or "password=" in url
    except ValueError:  # no URL at all
        return True


#: In a remedy: a command, and where in it the place belongs.
_COMMANDS = (
    (r"^(ridgeline (?:tenants|keys) list)\b", r"\1{place}"),
    (r"`ridgeline tenants add`", "`ridgeline tenants add NAME{place}`"),
    (r" SPEC\b", "{place}"),
)


@contextmanager
def placed(spec: Path | None, database: str | None) -> Iterator[None]:
    """The commands in the remedy of what is raised name the database that was given."""
    try:
        yield
    except RidgelineError as error:
        if place := same_place(spec, database):
            for pattern, command in _COMMANDS:
                told = command.replace("{place}", place.replace("\\", r"\\"))
                error.remedy = re.sub(pattern, told, error.remedy)
        if spec is not None:
            up = f"`ridgeline up {shlex.quote(str(spec))}`"
            error.remedy = error.remedy.replace("`ridgeline up`", up)
        raise


@contextmanager
def opened(spec: Path | None, database: str | None, *, create: bool = False) -> "Iterator[Tenants]":
    """The tenants of the database that is meant."""
    needs("sqlalchemy", "gateway")
    from ridgeline.serving.gateway.tenants import Tenants
    from ridgeline.store.database import open_store

    with placed(spec, database):
        engine = open_store(named_url(spec, database), create=create)
        try:
            yield Tenants(engine)
        finally:
            engine.dispose()


def actor() -> str:
    """Whom the audit log names: the user of this machine who typed the command."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return "cli"


def checked(kind: type[M], given: dict[str, Any], *, argument: str) -> M:
    """A spec from a command's options; the SpecError names the one at fault.

    `argument` is the field that stands without an option.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = next((str(step) for step in reversed(first["loc"]) if isinstance(step, str)), "")
        field = _OPTIONS.get(field, field)
        where = field.upper() if field == argument else f"--{field.replace('_', '-')}"
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "string_pattern_mismatch":
            problem = f"{first['input']!r} is not {_form(first['ctx']['pattern'])}"
        raise SpecError(problem[:1].lower() + problem[1:], where=where) from error


def _form(pattern: str) -> str:
    if pattern == TENANT_NAME:
        return "a name of lower-case letters, digits and inner dots, hyphens and underscores"
    return "text without control characters"


_OPTIONS = {"usd": "budget", "per": "budget", "models": "model", "priority_class": "class"}


def echo_json(value: object) -> None:
    """What the admin API would give, indented."""
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(value), indent=1, ensure_ascii=False))


def shown_time(ns: int | None) -> str:
    """A moment for a table, in UTC."""
    if ns is None:
        return ""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")
