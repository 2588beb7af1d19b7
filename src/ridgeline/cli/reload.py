"""`ridgeline reload`: the platform that is up becomes what a spec says, while requests run."""

import asyncio
from pathlib import Path
from typing import Any

import click

from ridgeline.cli.diff import json_option, name_option, show, spec_argument, up
from ridgeline.launch.running import Running
from ridgeline.platform.changes import How
from ridgeline.spec import Platform, load

_REFUSED = (How.ROLLOUT, How.RESTART)


@click.command()
@spec_argument
@name_option
@json_option
def reload(spec: Path, name: str | None, as_json: bool) -> None:
    """Make the platform that is up what SPEC says, without cutting an answer: all or nothing.

    Exit status 1 where a part of it is refused; then nothing has changed.
    """
    wanted = load(spec)
    running = up(name or wanted.name)
    changes = asyncio.run(_ask(running, wanted))
    for one in changes:
        one["remedy"] = one["remedy"].replace(" SPEC", f" {spec}")
    show(changes, running, as_json=as_json)
    refused = any(one["how"] in _REFUSED for one in changes)
    if not as_json and changes:
        click.echo("Nothing was changed." if refused else f"{running.name} runs as {spec} says.")
    raise SystemExit(1 if refused else 0)


async def _ask(running: Running, wanted: Platform) -> Any:
    from ridgeline.launch.door import ask

    return await ask(running, "reload", spec=wanted.model_dump(mode="json"))
