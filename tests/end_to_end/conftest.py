"""`ridgeline up` with the real default model, once for all tests of this folder."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED


@dataclass(frozen=True)
class Up:
    """A platform that runs: its address, its process, and all it printed until it was ready."""

    url: str
    process: "subprocess.Popen[str]"
    banner: str
    state: Path

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="-", max_retries=0, timeout=120)


def run_up(*arguments: str, state: Path) -> Up:
    """Run `ridgeline up` until it says how to stop it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ridgeline", "up", "--port", "0", *arguments],
        env={**os.environ, "RIDGELINE_STATE": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C drains" in line:
            break
    banner = "".join(lines)
    found = re.search(r"http://127\.0\.0\.1:\d+", banner)
    assert found is not None, f"it did not come up:\n{banner}"
    return Up(found[0], process, banner, state)


@pytest.fixture(scope="session")
def default_model() -> str:
    packaged = PACKAGED[DEFAULT_MODEL]
    if packaged.path() is None:
        pytest.skip(f"the default model is not installed: {packaged.install}")
    return DEFAULT_MODEL


@pytest.fixture
def start_up(default_model: str) -> Iterator[Callable[..., Up]]:
    """Starts a platform of the test's own; one that is left over is ended."""
    running: list[Up] = []

    def start(*arguments: str, **options: Path) -> Up:
        running.append(run_up(*arguments, **options))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        if one.process.stdout is not None and not one.process.stdout.closed:
            one.process.communicate()


@pytest.fixture(scope="session")
def up(default_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = run_up(state=tmp_path_factory.mktemp("up-state"))
    yield running
    running.process.send_signal(signal.SIGINT)
    try:
        assert running.process.wait(timeout=60) == 0
    finally:
        running.process.kill()
        running.process.communicate()
