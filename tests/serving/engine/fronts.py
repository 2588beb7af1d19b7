"""Starts real replicas (front and engine process) around the stub engine, for tests.

python -m tests.serving.engine.fronts MODEL_FOLDER OPTIONS_AS_JSON      is one of them
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil

ROOT = Path(__file__).resolve().parents[3]
STUB = "tests.serving.engine.stub_engine:Stub"
NAME = "stub"


@dataclass
class FrontProcess:
    """One front, as its supervisor sees it."""

    process: subprocess.Popen[str]
    url: str = ""

    def event(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.wait(10)} {self.stderr()}"
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "listening":
            self.url = event["url"]
        return event

    def until(self, name: str) -> dict[str, Any]:
        """Wait for an event by name."""
        while (event := self.event())["event"] != name:
            pass
        return event

    def engine(self) -> psutil.Process:
        """Its engine process: the child that is not multiprocessing's own."""
        front = psutil.Process(self.process.pid)
        while True:  # a child that was just forked still has the command line of its parent
            for child in front.children():
                if "spawn_main" in " ".join(child.cmdline()):
                    return child
            assert self.process.poll() is None, "the front has ended"

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@dataclass
class Reply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, body: object = None, **headers: str) -> Reply:
    """One request: GET, or POST of `body` (bytes as they are, else as JSON)."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(url, data, headers={"Content-Type": "application/json"} | headers)
    try:
        with urlopen(request, timeout=20) as response:
            return Reply(response.status, response.headers, response.read())
    except HTTPError as error:
        with error:
            return Reply(error.code, error.headers, error.read())


@contextmanager
def stream(front: "FrontProcess", prompt: str, **fields: Any) -> Iterator[Iterator[str]]:
    """A streamed completion's events, as they come."""
    body = {"model": NAME, "prompt": prompt, "stream": True} | fields
    request = Request(
        f"{front.url}/v1/completions",
        json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=20) as response:
        lines = (line.decode().strip() for line in response)
        yield (line.removeprefix("data: ") for line in lines if line)


@contextmanager
def front_process(model: Path, **options: Any) -> Iterator[FrontProcess]:
    """A replica that is listening; killed at the end if it still runs."""
    argv = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.serving.engine.fronts",
        str(model),
        json.dumps(options),
    ]
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        yield FrontProcess(process)
    finally:
        process.kill()
        process.communicate()


def main() -> int:
    # Imported here, since the engine process imports this module too, for its `__main__`.
    from ridgeline.errors import RidgelineError
    from ridgeline.launch.local import announce
    from ridgeline.serving.engine.config import EngineConfig
    from ridgeline.serving.engine.front import serve
    from ridgeline.serving.engine.link import EngineProcess
    from ridgeline.serving.engine.replica import Limits
    from ridgeline.serving.http_guard import Patience

    model, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    config = EngineConfig(model=model, max_model_len=options.pop("max_model_len", 0))
    patience = Patience(**options.pop("patience", {}))
    limits = Limits(**options.pop("limits", {}))
    make_engine = options.pop("make_engine", STUB)
    port = options.pop("port", 0)
    try:
        return serve(
            EngineProcess(config, make_engine, {}),
            config,
            name=NAME,
            port=port,
            limits=limits,
            patience=patience,
            said=announce,
            **options,
        )
    except RidgelineError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
