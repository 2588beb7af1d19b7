"""One process of a gateway that has several; `ridgeline up` starts it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from ridgeline import event_loop


@click.command(hidden=True)
def gateway_worker() -> None:
    """Do what the parent says on standard input; leave when it is gone."""
    from ridgeline.serving.gateway.app import Gateway
    from ridgeline.serving.gateway.worker import work
    from ridgeline.web.console import mount_console

    def mount(gateway: Gateway, status: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        mount_console(gateway.app, status, gateway.store)

    event_loop.run(work(mount))
