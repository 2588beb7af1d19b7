"""A whole platform under measurement: `ridgeline up` started, ready, and stopped again.

`soak`, `hostile` and `start` use it. Its run state goes into a folder of its own, so that it does
not meet a platform that a person has up.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

MODEL = "smollm2-135m-instruct"
STOP_MOST_S = 60.0


@dataclass(frozen=True, slots=True)
class Up:
    """A platform that said it is ready, `ready_s` after its process was started."""

    url: str
    pid: int
    ready_s: float


@asynccontextmanager
async def up(*arguments: str) -> AsyncIterator[Up]:
    """`ridgeline up` with the default model on a free port, for the length of the block."""
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as state:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ridgeline", "up", "--port", "0", *arguments),
            env={**os.environ, "RIDGELINE_STATE": state},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            url = await _ready(process)
            yield Up(url, process.pid, time.perf_counter() - began_s)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_MOST_S)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    url = ""
    async for line in process.stdout:
        if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
            url = url or found[0].decode()
        if b"Ctrl-C drains" in line:
            return url
    raise RuntimeError(f"ridgeline up ended with {await process.wait()} before it was ready")
