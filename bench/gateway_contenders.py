"""How each gateway is started in front of the mock replica, and what is read from its processes.

Law of this file: each has one core, one worker and its own defaults; ours has tenants, keys,
limits, budgets, prices and a ledger on disk, LiteLLM a key, the routers in Rust nothing of that.
`bench/gateway.py` calls it. Linux (taskset).
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gateway_load import KEY_VARIABLE
from hf_model import BENCH_DIR
from mock_upstream import MODEL
from peer_home import folder
from ridgeline.errors import BenchError, LaunchError
from servers import Launch, Server, free_port

KEY, ADMIN_KEY, ADMIN_VARIABLE = "sk-bench-0123456789", "sk-bench-admin-0123456789", "BENCH_ADMIN"
START_MOST_S = 120.0
OURS = "ridgeline"
PLATFORM = """\
name: bench
models:
  - name: {model}
    engine: {{kind: url, urls: ["{upstream}"]}}
    price: {{input: "0.50", cached_input: "0.05", output: "2.00"}}
tenants:
  - name: bench
    limits:
      requests_per_minute: 100000000
      input_tokens_per_minute: 100000000000
      output_tokens_per_minute: 100000000000
      concurrent: 10000
    budget: {{usd: 1000000, per: month}}
gateway:
  listen: 127.0.0.1:{port}
  api_key_env: {key}
  admin_key_env: {admin}
"""
LITELLM = """\
model_list:
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: {upstream}/v1
      api_key: none
general_settings:
  master_key: {key}
"""


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for whoever is measured; the load and the mock replica share what is left."""

    server: int
    load: int
    mock: int


def cores() -> Cores:
    """Which core is whose. BenchError where there is only one."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2 or shutil.which("taskset") is None:
        raise BenchError("the gateway bench needs two cores and taskset (util-linux)")
    return Cores(found[0], found[1], found[-1])


@dataclass(frozen=True, slots=True)
class Contender:
    """A gateway to measure. `command` gets its own port, the replica's URL and a folder."""

    command: Callable[[int, str, Path], list[str]]
    env: Mapping[str, str] = field(default_factory=dict)
    package: str = ""


def _ours(port: int, upstream: str, home: Path) -> list[str]:
    spec = home / "platform.yaml"
    names = {"key": KEY_VARIABLE, "admin": ADMIN_VARIABLE}
    spec.write_text(PLATFORM.format(model=MODEL, upstream=upstream, port=port, **names))
    return [sys.executable, "-m", "ridgeline", "up", str(spec)]


def _litellm(port: int, upstream: str, home: Path) -> list[str]:
    config = home / "config.yaml"
    config.write_text(LITELLM.format(model=MODEL, upstream=upstream, key=KEY))
    where = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return [str(folder("litellm") / "bin" / "litellm"), "--config", str(config), *where]


def _router(start: Sequence[str], port: int, upstream: str) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", upstream]
    return [*start, *where, "--prometheus-port", str(free_port())]


def _sglang_router(port: int, upstream: str, _: Path) -> list[str]:
    python = str(folder("sglang-router") / "bin" / "python")
    start = [python, "-m", "sglang_router.launch_router"]
    return [*_router(start, port, upstream), "--log-level", "warn"]


def _vllm_router(port: int, upstream: str, _: Path) -> list[str]:
    start = [str(folder("vllm-router") / "bin" / "vllm-router")]
    return [*_router(start, port, upstream), "--log-level", "warning"]


def _smg(port: int, upstream: str, _: Path) -> list[str]:
    start = [str(folder("smg") / "bin" / "smg"), "launch"]
    return [*_router(start, port, upstream), "--log-level", "warn"]


# Without a network LiteLLM would wait for its table of prices; its log says every request else.
_LITELLM_ENV = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_TELEMETRY": "False",
}
CONTENDERS = {
    OURS: Contender(_ours, {ADMIN_VARIABLE: ADMIN_KEY, KEY_VARIABLE: KEY}),
    "litellm": Contender(_litellm, _LITELLM_ENV, "litellm"),
    "sglang-router": Contender(_sglang_router, {"HF_HUB_OFFLINE": "1"}, "sglang-router"),
    "vllm-router": Contender(_vllm_router, {}, "vllm-router"),
    "smg": Contender(_smg, {"HF_HUB_OFFLINE": "1"}, "smg"),
}
PEERS = tuple(name for name, contender in CONTENDERS.items() if contender.package)


class Gateway(Server):
    """A gateway and the processes under it, on one core; `key` is what clients send."""

    key = KEY

    def __init__(self, name: str, upstream: str, core: int) -> None:
        home = BENCH_DIR / "gateway" / name
        shutil.rmtree(home, ignore_errors=True)  # the ledger begins empty
        home.mkdir(parents=True)
        contender = CONTENDERS[name]
        env = {**contender.env, "RIDGELINE_STATE": str(home)}

        def command(port: int) -> list[str]:
            return ["taskset", "-c", str(core), *contender.command(port, upstream, home)]

        super().__init__(Launch(name, command, env), home / "log")

    def _watch_rss(self) -> None:
        """Nobody watches all the time: that took CPU time from what is measured."""

    def rss_bytes(self) -> int:
        """Resident memory of all its processes now."""
        total = 0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                total += process.memory_info().rss
        return total

    def until_answers(self) -> None:
        """Waits for the first whole answer. Raises LaunchError where there is none in time."""
        until_s = time.perf_counter() + START_MOST_S
        while time.perf_counter() < until_s:
            if _status(f"{self.url}/v1/chat/completions", self.key, _SMALLEST)[0] == 200:
                return
            if self._leader.poll() is not None:
                raise LaunchError(f"{self.name} ended while starting\n{self.log_tail()}")
            time.sleep(0.05)
        raise LaunchError(f"{self.name} did not answer in {START_MOST_S:.0f} s\n{self.log_tail()}")

    def take_tenant_key(self) -> None:
        """Asks ours for a key of the tenant that has limits. BenchError where it gives none."""
        asked = {"name": "bench", "tenant": "bench"}
        status, said = _status(f"{self.url}/admin/v1/keys", ADMIN_KEY, asked)
        if status not in (200, 201):
            raise BenchError(f"{self.name} gave no key: status {status}: {said[:300]!r}")
        self.key = str(json.loads(said)["secret"])


_SMALLEST = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


def _status(url: str, key: str, body: Mapping[str, object]) -> tuple[int, bytes]:
    """Status and body of a POST; (0, b"") where nobody listens."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


class Mock:
    """The mock replica's process."""

    def __init__(self, core: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        script = str(Path(__file__).parent / "mock_upstream.py")
        start = ["taskset", "-c", str(core), sys.executable, script, "--port", str(self.port)]
        self._process = subprocess.Popen(start)
        while _status(f"{self.url}/v1/chat/completions", "none", _SMALLEST)[0] != 200:
            time.sleep(0.02)

    def cpu_s(self) -> float:
        """CPU seconds it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
