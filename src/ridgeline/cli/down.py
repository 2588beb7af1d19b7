"""`ridgeline down`: drain and stop what `up` started."""

import time

import click

from ridgeline.errors import LaunchError
from ridgeline.launch.running import Running, read

_LOOK_EVERY_S = 0.05


@click.command()
@click.argument("name", required=False)
@click.option("--timeout", default=120.0, show_default=True, help="Seconds to wait for the drain.")
def down(name: str | None, timeout: float) -> None:
    """Drain and stop the platform NAME, or the only one that runs.

    Exit status 1 when it still drains after the time.
    """
    running = _choose(name)
    click.echo(f"{running.name} drains ...")
    running.stop()
    deadline = time.monotonic() + timeout
    while running.alive():
        if time.monotonic() > deadline:
            click.echo(f"process {running.pid} still drains after {timeout:.0f} s", err=True)
            raise SystemExit(1)
        time.sleep(_LOOK_EVERY_S)
    click.echo(f"{running.name} is down.")


def _choose(name: str | None) -> Running:
    platforms = read()
    named = ", ".join(one.name for one in platforms)
    if not platforms:
        raise LaunchError("nothing runs here", where="down", remedy="ridgeline up")
    if name is None and len(platforms) > 1:
        raise LaunchError("several platforms run", where="down", remedy=f"name one of: {named}")
    for one in platforms:
        if name in (None, one.name):
            return one
    raise LaunchError(f"no platform {name!r} runs", where="down", remedy=f"one of: {named}")
