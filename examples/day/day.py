"""A day of one model in four minutes: no replica at night, twelve at noon, and no stream cut.

    python examples/day/day.py            # 24 hours of 10 seconds each
    python examples/day/day.py --short    # a quarter of the users, hours of 1.25 seconds
    python examples/day/day.py --real     # the default model on our engine, at most two replicas

Starts `ridgeline up` on platform.yaml (or real.yaml), plays users that each ask again and again,
prints what happened, and compares the bill of `ridgeline cost` with the replicas that it saw. Exit
status 1 where a stream was cut, a replica is left, or the bill is not that of the replicas.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp

FOLDER = Path(__file__).parent
#: From each hour on, how many users ask at once.
USERS = {0: 0, 6: 4, 8: 16, 10: 32, 12: 48, 14: 40, 16: 48, 18: 24, 20: 8, 22: 0}
LOOK_S = 0.1
PATIENCE_S = 60.0
USD_PER_S = Decimal(2) / 3600


@dataclass(frozen=True)
class Form:
    """What is played: on which platform, how long an hour is, which share of the users there is."""

    spec: Path = FOLDER / "platform.yaml"
    hour_s: float = 10.0
    share: float = 1.0
    tokens: int = 60


LONG = Form()
SHORT = Form(hour_s=1.25, share=0.25)
REAL = Form(FOLDER / "real.yaml", hour_s=5.0, share=0.125, tokens=24)


@dataclass
class Answer:
    """One stream: how long its first token took, and whether all of it came."""

    ended_s: float
    ttft_s: float | None
    is_whole: bool


@dataclass
class Seen:
    """What the whole day was like."""

    answers: list[Answer] = field(default_factory=list)
    replica_s: float = 0.0
    most_ready: int = 0
    at_the_end: int = 0

    @property
    def cut(self) -> int:
        """Streams of which some is missing."""
        return sum(not one.is_whole for one in self.answers)


class Users:
    """So many users as `count` says; who leaves ends the answer that it reads."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, answers: list[Answer], tokens: int
    ) -> None:
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._url, self._session, self._answers, self._tokens = url, session, answers, tokens
        self._count = 0

    def become(self, count: int) -> None:
        """From now on so many; one that still reads its last answer goes on asking."""
        self._count = count
        for number in range(count):
            if number not in self.tasks or self.tasks[number].done():
                self.tasks[number] = asyncio.create_task(self._user(number))

    async def _user(self, number: int) -> None:
        while number < self._count:
            self._answers.append(await self._ask(f"I am user {number}. What time is it?"))

    async def _ask(self, text: str) -> Answer:
        messages = [{"role": "user", "content": text}]
        body = {"model": "chat", "messages": messages, "max_tokens": self._tokens, "stream": True}
        began_s, ttft_s, is_whole = time.monotonic(), None, False
        try:
            async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: [DONE]"):
                        is_whole = True
                    elif line.startswith(b'data: {"error"'):
                        break
                    elif line.startswith(b"data: ") and ttft_s is None:
                        ttft_s = time.monotonic() - began_s
        except aiohttp.ClientError as error:
            print(f"cut: {error!r}", file=sys.stderr)
        return Answer(time.monotonic(), ttft_s, is_whole)


@asynccontextmanager
async def platform(spec: Path, folder: Path) -> AsyncIterator[str]:
    """`ridgeline up`, from listening to drained; its address."""
    log = folder / "up.log"
    environment = {**os.environ, "RIDGELINE_STATE": str(folder)}
    command = [sys.executable, "-m", "ridgeline", "up", str(spec)]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=out, stderr=out
        )
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
                if process.returncode is not None:
                    raise SystemExit(log.read_text())
                await asyncio.sleep(LOOK_S)
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()


async def play(url: str, form: Form) -> Seen:
    """The day, hour by hour, and the night until no replica is left."""
    seen, row_began = Seen(), 0
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        users = Users(url, session, seen.answers, form.tokens)
        began_s = time.monotonic()
        print(" hour  users  replicas (ready)  held  answers  TTFT p50  TTFT p99  cut")
        for hour in range(24):
            if hour in USERS:
                users.become(round(USERS[hour] * form.share))
            status = await look(url, session, seen, until_s=began_s + (hour + 1) * form.hour_s)
            if hour % 2:
                told(hour, round(users_at(hour) * form.share), status, seen.answers[row_began:])
                row_began = len(seen.answers)
        await asyncio.gather(*users.tasks.values())
        night_s = time.monotonic() + PATIENCE_S
        while status["replicas"] and time.monotonic() < night_s:
            status = await look(url, session, seen, until_s=time.monotonic() + 1.0)
        seen.at_the_end = len(status["replicas"])
    return seen


async def look(
    url: str, session: aiohttp.ClientSession, seen: Seen, *, until_s: float
) -> dict[str, Any]:
    """Watch the replicas until then; the last status."""
    while True:
        began_s = time.monotonic()
        async with session.get(f"{url}/console.json") as answer:
            status: dict[str, Any] = await answer.json()
        ready = sum(one["state"] == "ready" for one in status["replicas"])
        seen.most_ready = max(seen.most_ready, ready)
        await asyncio.sleep(LOOK_S)
        seen.replica_s += len(status["replicas"]) * (time.monotonic() - began_s)
        if time.monotonic() >= until_s:
            return status


def users_at(hour: int) -> int:
    """How many there are from the last change on."""
    return USERS[max(one for one in USERS if one <= hour)]


def told(hour: int, users: int, status: dict[str, Any], answers: list[Answer]) -> None:
    """One line of the table."""
    (model,) = status["control"]["models"]
    ready = sum(one["state"] == "ready" for one in status["replicas"])
    held = sum(status["held"].values())
    cut = sum(not one.is_whole for one in answers)
    ttfts = sorted(one.ttft_s for one in answers if one.ttft_s is not None)
    half, most = (f"{ttfts[int(len(ttfts) * q)]:7.2f} s" if ttfts else "-" for q in (0.5, 0.99))
    there = f"{model['versions'][0]['replicas'] if model['versions'] else 0} ({ready})"
    print(
        f"{hour + 1:5d}  {users:5d}  {there:>16}  {held:4d}  {len(answers):7d}"
        f"  {half:>8}  {most:>8}  {cut:3d}",
        flush=True,
    )


def bill(spec: Path, folder: Path) -> dict[str, Any]:
    """`ridgeline cost --json` for this day."""
    command = [sys.executable, "-m", "ridgeline", "cost", str(spec), "--json"]
    environment = {**os.environ, "RIDGELINE_STATE": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def adds_up(report: dict[str, Any], seen: Seen) -> bool:
    """Whether the lines are the bill, and the bill is that of the replicas that we saw."""
    whole = Decimal(report["bill_usd"])
    parts = {name: Decimal(report[f"{name}_usd"]) for name in ("unsettled", "idle", "loading")}
    parts["drained"] = Decimal(report["drained_usd"])
    parts["requests"] = sum((Decimal(one["floor_usd"]) for one in report["lines"]), Decimal(0))
    expected = Decimal(seen.replica_s) * USD_PER_S
    print("\n".join(f"  {name:10} ${part:.6f}" for name, part in parts.items()))
    print(f"  {'bill':10} ${whole:.6f}   {seen.replica_s:.0f} replica seconds: ${expected:.6f}")
    requests = report["requests"] == len(seen.answers)
    return sum(parts.values()) == whole and abs(whole - expected) < expected / 20 and requests


async def main(form: Form) -> int:
    """Play it; 0 where nothing was cut, nothing is left and the bill is right."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-day-") as name:
        folder = Path(name)
        async with platform(form.spec, folder) as url:
            seen = await play(url, form)
        print(
            f"{len(seen.answers)} answers, {seen.cut} streams cut, at most {seen.most_ready} ready"
        )
        is_right = adds_up(bill(form.spec, folder), seen)
    return 0 if is_right and not seen.cut and not seen.at_the_end else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kind = parser.add_mutually_exclusive_group()
    for name, what in (("short", SHORT), ("real", REAL)):
        kind.add_argument(f"--{name}", dest="form", action="store_const", const=what)
    sys.exit(asyncio.run(main(parser.parse_args().form or LONG)))
