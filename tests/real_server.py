"""`ridgeline serve` with the default model, as a process of its own, for tests of `evaluate`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FAULTY = Path(__file__).with_name("faulty_serve.py")
NAME = "m"


@contextmanager
def real_server(
    model: str, *arguments: str, fault: str = "", cache: Path | None = None
) -> Iterator[str]:
    """Its address once it is ready; it is killed at the end. `fault` is one of faulty_serve's."""
    program = [str(FAULTY), fault] if fault else ["-m", "ridgeline"]
    options = ["--name", NAME, "--port", "0", "--threads", "1", "--supervised", *arguments]
    process = subprocess.Popen(
        [sys.executable, *program, "serve", model, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ({} if cache is None else {"RIDGELINE_CACHE": str(cache)}),
    )
    try:
        yield _ready(process)
    finally:
        process.kill()
        process.communicate()


def _ready(process: "subprocess.Popen[str]") -> str:
    url = ""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        url = event.get("url", url)
        if event["event"] == "ready":
            return url
    raise AssertionError(f"it ended with {process.wait(60)} before it was ready")
