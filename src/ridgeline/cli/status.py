"""`ridgeline status`: what runs on this machine.

A gateway with tenants or keys tells its state only to a key that may watch: the platform's own, or
one of role viewer or admin. A key is sent to gateways of this machine only, those that `up` noted.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.markup import escape

from ridgeline.cli.tables import console, print_table
from ridgeline.errors import SpecError
from ridgeline.launch.running import Running, read

_ANSWER_WITHIN_S = 5.0
#: Where a key is looked for when nobody says: the first variable that is set.
_KEYS = ("RIDGELINE_ADMIN_KEY", "RIDGELINE_API_KEY")


@dataclass(frozen=True, slots=True)
class Look:
    """What a gateway says of itself; where it says nothing, why."""

    seen: Mapping[str, Any]
    silent: str = ""


@click.command()
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="Where a key is that may watch (the platform's, or of role viewer or admin).  "
    f"[default: {', else '.join(_KEYS)}]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def status(key_env: str | None, as_json: bool) -> None:
    """Show what runs on this machine: platforms, their models and replicas.

    It takes no SPEC: every platform that `up` started here is shown. Exit status 1 when nothing
    runs.
    """
    key = _key(key_env)
    platforms = [(running, _look(running, key)) for running in read()]
    if as_json:
        click.echo(json.dumps([_as_data(*one) for one in platforms], indent=1))
    elif not platforms:
        click.echo("Nothing runs here. Start something:\n  ridgeline up")
    else:
        for running, seen in platforms:
            _show(running, seen)
    raise SystemExit(0 if platforms else 1)


def _key(variable: str | None) -> str | None:
    """The key of the variable that is named, else of the first usual one that is set."""
    if variable is None:
        return next(filter(None, map(os.environ.get, _KEYS)), None)
    key = os.environ.get(variable)
    if not key:
        remedy = f"export {variable}=…"
        raise SpecError(f"the variable {variable} is not set", where="--key-env", remedy=remedy)
    return key


def _look(running: Running, key: str | None) -> Look:
    """Ask a gateway for its state."""
    header = {"Authorization": f"Bearer {key}"} if key else {}
    # The address is our own gateway's, from the note that `up` wrote.
    request = urllib.request.Request(f"{running.url}/console.json", headers=header)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_WITHIN_S) as answer:  # noqa: S310
            data = json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (401, 403):
            another = "another" if key else "a"
            return Look({}, f"the gateway needs {another} key that may watch: --key-env VARIABLE")
        return Look({}, f"the gateway answers with status {error.code}")
    except (OSError, ValueError):
        return Look({}, "the gateway does not answer")
    is_state = isinstance(data, dict) and "replicas" in data
    return Look(data) if is_state else Look({}, "what answers there is no gateway")


def _as_data(running: Running, look: Look) -> dict[str, Any]:
    return {
        "name": running.name,
        "url": running.url,
        "pid": running.pid,
        "models": list(running.models),
        "logs": running.logs,
        "answers": not look.silent,
        "silent": look.silent,
        "replicas": look.seen.get("replicas", []),
        "control": look.seen.get("control", {}),
    }


def _show(running: Running, look: Look) -> None:
    out = console()
    out.print(f"{running.name}   {running.url}   process {running.pid}", soft_wrap=True)
    if look.silent:
        out.print(f"  {look.silent}")
        return
    headings = ("  replica", "state", "in flight", "address")
    rows = [
        (f"  {one['id']}", one["state"], str(one["in_flight"]), one["address"])
        for one in look.seen["replicas"]
    ]
    print_table(out, headings, rows, first=2)
    control = look.seen.get("control") or {"models": [], "rollouts": []}
    for model in control["models"]:
        if "wanted" in model:
            out.print(escape(f"  {model['model']}: {_sized(model)}"))
    for rollout in control["rollouts"]:
        way = f"{rollout['old']['id']} to {rollout['new']['id']}"
        out.print(escape(f"  {rollout['model']}: {rollout['phase']}, {way}: {rollout['reason']}"))


def _sized(model: dict[str, Any]) -> str:
    """How many replicas there are, and why."""
    ready = sum(version["ready"] for version in model["versions"])
    bounds = f"{model['least']} to {model['most']}"
    if model["least"] == model["most"]:
        return f"{ready} of {model['wanted']} replicas ready"
    return f"{ready} of {model['wanted']} replicas ready ({bounds}): {model['reason']}"
