"""`ridgeline spare`, called by Ridgeline itself: a replica that has imported all and waits.

`serving.control.spares` starts one, and tells it in one line on standard input which replica to
become; from then on it is `ridgeline serve` with those arguments.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ridgeline.cli.extras import needs
from ridgeline.launch.local import announce

if TYPE_CHECKING:
    from ridgeline.serving.engine.link import EngineProcess


@dataclass(frozen=True, slots=True)
class Spare:
    """An engine that waits for its config, the log to write to, and since when it is wanted."""

    engine: "EngineProcess"
    log: Path
    since_s: float


@click.command()
def spare() -> None:
    """Import what a replica needs, wait, and become one."""
    needs("torch", "engine")
    import importlib

    from ridgeline.cli.serve import serve
    from ridgeline.serving.engine.environment import engine_environment
    from ridgeline.serving.engine.link import ENGINE, EngineProcess
    from ridgeline.serving.engine.process import write_errors_to

    engine = EngineProcess(None, ENGINE, engine_environment())
    importlib.import_module("ridgeline.serving.engine.front")
    engine.wait_for_imports()
    announce({"event": "spare"})
    line = _line()
    since_s = time.monotonic()
    if not line:
        return  # whoever started us is gone; the engine goes with us
    order = json.loads(line)
    log = Path(order["log"])
    write_errors_to(log)
    serve.main(
        [*order["arguments"], "--supervised"], prog_name="ridgeline serve",
        standalone_mode=False, obj=Spare(engine, log, since_s),
    )  # fmt: skip


def _line() -> bytes:
    """One line from whoever started us; empty once that is gone. What follows is not read."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            return b""
        line += byte
    return line
