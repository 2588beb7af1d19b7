"""`ridgeline diff`: what a spec would change in the platform that is up."""

import asyncio
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ridgeline.errors import LaunchError
from ridgeline.launch.running import Running, read
from ridgeline.platform.changes import Change, How, as_it_runs
from ridgeline.platform.changes import diff as differences
from ridgeline.serving.control.versions import read_version
from ridgeline.spec import Platform, load

spec_argument = click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
name_option = click.option("--name", help="Of the platform, where `up` was given another one.")
json_option = click.option("--json", "as_json", is_flag=True, help="The same as JSON.")


@click.command("diff")
@spec_argument
@name_option
@json_option
def diff(spec: Path, name: str | None, as_json: bool) -> None:
    """Say what SPEC would change in the platform that is up; nothing is changed.

    Exit status 1 where a reload would refuse it.
    """
    wanted = load(spec)
    running = up(name or wanted.name)
    told = asyncio.run(_ask(running))
    written = Platform.model_validate(told["written"])
    live = {model: read_version(text) for model, text in told["live"].items()}
    changes = differences(as_it_runs(written, wanted, live), wanted, spec=str(spec))
    show([change.told() for change in changes], running, as_json=as_json)
    if changes and not as_json and not _refused(changes):
        click.echo(f"ridgeline reload {shlex.quote(str(spec))}{f' --name {name}' if name else ''}")
    raise SystemExit(1 if _refused(changes) else 0)


def up(name: str) -> Running:
    """The platform of that name; LaunchError where it is not up."""
    there = read()
    for one in there:
        if one.name == name:
            return one
    named = ", ".join(one.name for one in there)
    raise LaunchError(
        f"no platform {name!r} is up here",
        where="SPEC",
        remedy=f"--name with one of: {named}" if named else "ridgeline up SPEC",
    )


async def _ask(running: Running) -> Any:
    from ridgeline.launch.door import ask

    return await ask(running, "spec")


def _refused(changes: Iterable[Change]) -> bool:
    return any(change.is_refused for change in changes)


def show(changes: list[dict[str, Any]], running: Running, *, as_json: bool) -> None:
    """Each change with how it comes about, the refused ones last, each remedy once."""
    if as_json:
        click.echo(json.dumps({"platform": running.name, "changes": changes}, indent=1))
        return
    if not changes:
        click.echo(f"{running.name} runs as the spec says.")
    for how in How:
        for one in changes:
            if one["how"] == how:
                click.echo(f"{how.value + ':':18} {one['said']}")
    for remedy in dict.fromkeys(one["remedy"] for one in changes if one["remedy"]):
        click.echo(f"try: {remedy}")
