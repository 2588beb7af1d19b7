"""The replicas and the routers of `bench/routing.py`: how each is started, and what replicas say.

Law of this file: every router faces the same fake replicas, at its own defaults for cache-aware
routing; replicas keep running between routers, so each run's prompts must be new (`routing_load`).
"""

import asyncio
import re
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from hf_model import BENCH_DIR
from peer_home import folder
from ridgeline.errors import BenchError, LaunchError
from servers import Launch, Server, free_port

MODEL = "fake"
RULES = ("prefix-sticky", "least-load", "round-robin")
PEERS = ("sglang-router", "vllm-router", "smg")
PLATFORM = """\
name: bench
models:
  - name: {model}
    engine: {{kind: url, urls: [{urls}]}}
    routing: {{policy: {rule}}}
gateway: {{listen: "127.0.0.1:{port}"}}
"""
CHAT = "/v1/chat/completions"
START_MOST_S = 120.0
_SMALLEST = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
_PEER_ENV = {"HF_HUB_OFFLINE": "1"}
_COUNTER = re.compile(r"^vllm:(\w+?)(?:_total)?\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the fake replicas pretend to be, in plain numbers."""

    step_ms: float = 12.0
    step_ms_per_seq: float = 0.3
    prefill_tokens_per_s: float = 20_000.0
    kv_tokens: int = 400_000

    def command(self, port: int) -> list[str]:
        """How one is started."""
        return [
            *(sys.executable, "-m", "ridgeline", "fake-replica", "--name", MODEL),
            *("--port", str(port), "--kv-tokens", str(self.kv_tokens)),
            *("--step-ms", str(self.step_ms), "--step-ms-per-seq", str(self.step_ms_per_seq)),
            *("--prefill-tokens-per-s", str(self.prefill_tokens_per_s)),
        ]


class Unwatched(Server):
    """A server whose memory nobody looks at: looking took CPU time from what is measured."""

    def _watch_rss(self) -> None:
        """Not watched."""

    async def until_answers(self) -> None:
        """Waits for the first whole answer. Raises LaunchError where there is none in time."""
        until_s = time.perf_counter() + START_MOST_S
        async with aiohttp.ClientSession() as session:
            while time.perf_counter() < until_s:
                if self._leader.poll() is not None:
                    raise LaunchError(f"{self.name} ended while starting\n{self.log_tail()}")
                with suppress(aiohttp.ClientError, OSError):
                    async with session.post(f"{self.url}{CHAT}", json=_SMALLEST) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.05)
        raise LaunchError(f"{self.name} did not answer in {START_MOST_S:.0f} s\n{self.log_tail()}")


def replica(number: int, machine: Machine) -> Unwatched:
    """One fake replica, starting."""
    log = BENCH_DIR / "routing" / f"replica-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return Unwatched(Launch(f"replica-{number}", machine.command, {}), log)


def router(name: str, urls: Sequence[str]) -> Unwatched:
    """Our gateway with the rule of this name, or a peer, in front of the replicas; starting."""
    home = BENCH_DIR / "routing" / name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)

    def command(port: int) -> list[str]:
        return _ours(name, port, urls, home) if name in RULES else _peer(name, port, urls)

    env = {"RIDGELINE_STATE": str(home)} if name in RULES else _PEER_ENV
    return Unwatched(Launch(name, command, env), home / "log")


def _ours(rule: str, port: int, urls: Sequence[str], home: Path) -> list[str]:
    spec = home / "platform.yaml"
    quoted = ", ".join(f'"{url}"' for url in urls)
    spec.write_text(PLATFORM.format(model=MODEL, urls=quoted, rule=rule, port=port))
    return [sys.executable, "-m", "ridgeline", "up", str(spec)]


def _peer(name: str, port: int, urls: Sequence[str]) -> list[str]:
    home = folder(name) / "bin"
    start = {
        "sglang-router": [str(home / "python"), "-m", "sglang_router.launch_router"],
        "vllm-router": [str(home / "vllm-router")],
        "smg": [str(home / "smg"), "launch"],
    }[name]
    level = "warning" if name == "vllm-router" else "warn"
    return [
        *(*start, "--policy", "cache_aware", "--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-port", str(free_port()), "--log-level", level, "--worker-urls", *urls),
    ]


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica's counters: prompt tokens it was asked for, those it had, and what is there."""

    asked_tokens: float
    cached_tokens: float
    load: float


async def look(session: aiohttp.ClientSession, url: str) -> Seen:
    """What a fake replica says of itself. BenchError where it does not."""
    async with session.get(f"{url}/metrics") as answer:
        found = {name: float(value) for name, value in _COUNTER.findall(await answer.text())}
    try:
        running, waiting = found["num_requests_running"], found["num_requests_waiting"]
        asked, cached = found["prefix_cache_queries"], found["prefix_cache_hits"]
    except KeyError as error:
        raise BenchError(f"{url}/metrics has no {error}") from error
    return Seen(asked, cached, running + waiting)
