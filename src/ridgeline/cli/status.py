"""`ridgeline status`: what runs on this machine."""

import json
import urllib.error
import urllib.request
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ridgeline.launch.running import Running, read

_ANSWER_WITHIN_S = 5.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def status(as_json: bool) -> None:
    """Show what runs on this machine: platforms, their models and replicas.

    Exit status 1 when nothing runs.
    """
    platforms = [(running, _look(running)) for running in read()]
    if as_json:
        click.echo(json.dumps([_as_data(*one) for one in platforms], indent=1))
    elif not platforms:
        click.echo("Nothing runs here. Start something:\n  ridgeline up")
    else:
        for running, seen in platforms:
            _show(running, seen)
    raise SystemExit(0 if platforms else 1)


def _look(running: Running) -> dict[str, Any]:
    """What the gateway says of itself; empty when it does not answer."""
    try:
        # The address is our own gateway's, from the note that `up` wrote.
        with urllib.request.urlopen(  # noqa: S310
            f"{running.url}/console.json", timeout=_ANSWER_WITHIN_S
        ) as answer:
            data = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError):
        return {}
    return data if isinstance(data, dict) else {}


def _as_data(running: Running, seen: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": running.name,
        "url": running.url,
        "pid": running.pid,
        "models": list(running.models),
        "logs": running.logs,
        "answers": bool(seen),
        "replicas": seen.get("replicas", []),
        "control": seen.get("control", {}),
    }


def _show(running: Running, seen: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(f"{running.name}   {running.url}   process {running.pid}")
    if not seen:
        console.print("  the gateway does not answer")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("  replica", "state", "in flight", "address"):
        table.add_column(heading, overflow="fold")
    for replica in seen["replicas"]:
        table.add_row(
            f"  {replica['id']}",
            replica["state"],
            str(replica["in_flight"]),
            replica["address"],
        )
    console.print(table)
    control = seen.get("control") or {"models": [], "rollouts": []}
    for model in control["models"]:
        if "wanted" in model:
            console.print(escape(f"  {model['model']}: {_sized(model)}"))
    for rollout in control["rollouts"]:
        way = f"{rollout['old']['id']} to {rollout['new']['id']}"
        console.print(
            escape(f"  {rollout['model']}: {rollout['phase']}, {way}: {rollout['reason']}")
        )


def _sized(model: dict[str, Any]) -> str:
    """How many replicas there are, and why."""
    ready = sum(version["ready"] for version in model["versions"])
    bounds = f"{model['least']} to {model['most']}"
    if model["least"] == model["most"]:
        return f"{ready} of {model['wanted']} replicas ready"
    return f"{ready} of {model['wanted']} replicas ready ({bounds}): {model['reason']}"
