"""A server under measurement: started, timed, held still while the other runs, and stopped.

Law of this file: of all servers only one may use the CPU at a time. The others are stopped by
SIGSTOP, all of their processes, and their CPU time is read before and after to prove it. Nothing
outlives `stop`. `bench/rounds.py` calls it. Linux and macOS (signals and psutil).
"""

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from client import Target, complete, first_model
from ridgeline.errors import BenchError, LaunchError

START_MOST_S = 420.0  # a cold compile cache took a peer 150 s
STOP_MOST_S = 20.0
RSS_EVERY_S = 0.25
HELD_MOST_S, HELD_EVERY_S = 10.0, 0.001


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one server; `command` gets the port."""

    name: str
    command: Callable[[int], list[str]]
    env: Mapping[str, str]


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One running server and all the processes under it."""

    def __init__(self, launch: Launch, log: Path) -> None:
        self.name = launch.name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.peak_rss_bytes = 0
        self.model = ""
        self._log = log
        self._began_s = time.perf_counter()
        with log.open("wb") as out:
            self._leader = subprocess.Popen(
                launch.command(self.port),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(launch.env),
                start_new_session=True,
            )
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch_rss, daemon=True)
        self._watcher.start()

    def processes(self) -> list[psutil.Process]:
        """The leader and everything below it that is alive."""
        try:
            leader = psutil.Process(self._leader.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _watch_rss(self) -> None:
        over = False
        while not over:
            total_bytes = 0
            for process in self.processes():
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    total_bytes += process.memory_info().rss
            self.peak_rss_bytes = max(self.peak_rss_bytes, total_bytes)
            over = self._done.wait(RSS_EVERY_S)

    async def first_token_s(self) -> float:
        """Waits for the first generated token; seconds since the process was started.

        Raises LaunchError with the end of the log when the server dies or never answers.
        """
        while time.perf_counter() - self._began_s < START_MOST_S:
            if self._leader.poll() is not None:
                raise LaunchError(f"{self.name} ended while starting\n{self.log_tail()}")
            with suppress(aiohttp.ClientError, OSError):
                self.model = await first_model(self.url)
                await self._one_token()
                return time.perf_counter() - self._began_s
            await asyncio.sleep(0.05)
        raise LaunchError(f"{self.name} did not answer in {START_MOST_S:.0f} s\n{self.log_tail()}")

    async def _one_token(self) -> None:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(
                f"{self.url}/v1/completions",
                json={"model": self.model, "prompt": "Hello", "max_tokens": 1},
            ) as answer,
        ):
            await answer.json()

    def log_tail(self) -> str:
        """The last lines the server wrote."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def cpu_s(self) -> float:
        """CPU seconds of all its processes since they began."""
        total_s = 0.0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    def pause(self) -> None:
        """Holds every process still; a paused server uses no CPU at all.

        A signal takes effect when its process is next looked at, so this waits until it has.
        Raises BenchError when a process goes on.
        """
        self._signal(signal.SIGSTOP)
        end_s = time.perf_counter() + HELD_MOST_S
        while not all(_is_still(process) for process in self.processes()):
            if time.perf_counter() > end_s:
                raise BenchError(f"{self.name} cannot be held still", where="SIGSTOP")
            time.sleep(HELD_EVERY_S)

    def resume(self) -> None:
        """Lets every process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def stop(self) -> None:
        """Ends it: politely, then not. Every process below it is gone when this returns."""
        everyone = self.processes()
        self.resume()
        with suppress(ProcessLookupError):
            self._leader.terminate()
        _, left = psutil.wait_procs(everyone, timeout=STOP_MOST_S)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=STOP_MOST_S)
        self._leader.wait()
        self._done.set()
        self._watcher.join()


def _is_still(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return True


@dataclass(frozen=True, slots=True)
class Usage:
    """Whose CPU time a stretch of measurement was, as shares (0..1) of the whole machine."""

    wall_s: float
    own: float
    others: float


class CpuMeter:
    """Tells our servers' CPU time from everybody else's (a hypervisor's theft included)."""

    def __init__(self, running: Server, idle: Sequence[Server]) -> None:
        self._running, self._idle = running, idle
        self._at_s = time.perf_counter()
        self._busy_s = machine_busy_s()
        self._own_s = running.cpu_s() + _client_cpu_s()
        self._idle_s = sum(server.cpu_s() for server in idle)

    def read(self) -> Usage:
        """The stretch since this was made. Raises BenchError when a paused server ran."""
        wall_s = time.perf_counter() - self._at_s
        whole_s = wall_s * (psutil.cpu_count() or 1)
        own_s = self._running.cpu_s() + _client_cpu_s() - self._own_s
        idle_s = sum(server.cpu_s() for server in self._idle) - self._idle_s
        if idle_s > 0.01 * wall_s:
            raise BenchError(f"a paused server used {idle_s:.2f} s of CPU in {wall_s:.1f} s")
        others_s = max(machine_busy_s() - self._busy_s - own_s, 0.0)
        return Usage(wall_s, own_s / whole_s, others_s / whole_s)


def _client_cpu_s() -> float:
    return time.process_time()


def machine_busy_s() -> float:
    """CPU seconds that all cores together were not idle."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


async def warm_up(
    server: Server,
    prompts: Sequence[str],
    prompt_tokens: int,
    asks: Mapping[str, Any] | None = None,
) -> None:
    """A few requests that are not measured: caches fill and just-in-time compilers finish."""
    target = Target(server.url, server.model, prompt_tokens, output_tokens=16, asks=asks or {})
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(complete(session, target, prompt) for prompt in prompts))
