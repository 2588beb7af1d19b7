"""The lean client of `bench/gateway.py`: closed loop, kept connections, raw bytes.

    python bench/gateway_load.py --port N --model M [--lanes 16] [--requests N | --seconds S]

Law of this file: it runs as a process of its own, on the core that the server under measurement
does not have, and does so little for a request that it is not what is measured; no two prompts are
alike. A request that is not answered with a whole 200 ends the run. Prints `Measured` as JSON.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

MOMENT = re.compile(rb"@(\d{9,20}) ")
KEY_VARIABLE = "BENCH_GATEWAY_KEY"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run in numbers, times in seconds; p50 and p99 by nearest rank.

    Of streams, `shift` is by how much the gap between two chunks was longer than when they were
    sent, `transit` how long a chunk was on its way; 0 without streams.
    """

    requests: int
    wall_s: float
    client_cpu_s: float
    p50_s: float
    p99_s: float
    shift_p99_s: float
    transit_p50_s: float
    transit_p99_s: float


@dataclass(slots=True)
class Result:
    """What a run has seen so far."""

    seconds: list[float] = field(default_factory=list)
    transits_s: list[float] = field(default_factory=list)
    shifts_s: list[float] = field(default_factory=list)

    def measured(self, wall_s: float, client_cpu_s: float) -> Measured:
        """In numbers."""
        return Measured(
            requests=len(self.seconds),
            wall_s=wall_s,
            client_cpu_s=client_cpu_s,
            p50_s=_quantile(self.seconds, 0.5),
            p99_s=_quantile(self.seconds, 0.99),
            shift_p99_s=_quantile(self.shifts_s, 0.99),
            transit_p50_s=_quantile(self.transits_s, 0.5),
            transit_p99_s=_quantile(self.transits_s, 0.99),
        )


def _quantile(values: list[float], share: float) -> float:
    # client.quantile is the same, but lives beside imports that take this process seconds.
    return sorted(values)[round(share * (len(values) - 1))] if values else 0.0


@dataclass(frozen=True, slots=True)
class Asks:
    """What a run asks for: so many requests, or whatever can be asked in so many seconds."""

    port: int
    model: str
    lanes: int
    requests: int
    seconds: float
    stream: str
    prompt_bytes: int
    seed: int


class Lane(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._buffer = b""
        self._began_ns = 0
        self._read_to = 0
        self._before: tuple[int, int] | None = None  # of the last chunk: when sent, when here
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: the first request goes out."""
        self._transport = cast("asyncio.Transport", transport)
        self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody may hang up before the run is over."""
        self._run.fail(f"the connection was closed: {exc}; {self._buffer[:300]!r}")

    def ask(self) -> None:
        """The next request, where there is one left."""
        assert self._transport is not None
        request = self._run.next_request()
        if request is None:
            return
        self._buffer, self._read_to, self._before = b"", 0, None
        self._began_ns = time.monotonic_ns()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer; where it is whole, the next request goes out."""
        now_ns = time.monotonic_ns()
        self._buffer = self._buffer + data if self._buffer else data
        if self._run.asks.stream:
            self._read_moments(now_ns)
        if is_whole(self._buffer):
            if not self._buffer.startswith(b"HTTP/1.1 200"):
                self._run.fail(f"was answered {self._buffer[:300]!r}")
                return
            seconds = (now_ns - self._began_ns) / 1e9
            self.ask()  # first, so that a run is over only once nobody asks any more
            self._run.answered(seconds)

    def _read_moments(self, now_ns: int) -> None:
        result = self._run.result
        for found in MOMENT.finditer(self._buffer, self._read_to):
            self._read_to = found.end()
            sent_ns = int(found[1])
            result.transits_s.append((now_ns - sent_ns) / 1e9)
            if self._before is not None:
                gap_ns = now_ns - self._before[1]
                result.shifts_s.append((gap_ns - (sent_ns - self._before[0])) / 1e9)
            self._before = sent_ns, now_ns


class Run:
    """One closed-loop run over all lanes."""

    def __init__(self, asks: Asks, key: str) -> None:
        self.asks = asks
        self.result = Result()
        self._asked = 0
        self._until_s = time.monotonic() + asks.seconds
        self._chance = random.Random(asks.seed)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{asks.port}\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            "User-Agent: bench\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n"
        ).encode()
        self._filler = "".join(self._chance.choice("abcdefgh ") for _ in range(asks.prompt_bytes))

    def next_request(self) -> bytes | None:
        """Bytes of a request whose prompt begins as no other; None where no more is asked."""
        if self._is_enough():
            return None
        self._asked += 1
        prompt = f"{self._chance.getrandbits(64):x} {self._filler}"
        body = body_of(self.asks, prompt)
        return self._head % len(body) + body

    def answered(self, seconds: float) -> None:
        """One request was; the last one ends the run."""
        self.result.seconds.append(seconds)
        all_in = len(self.result.seconds) == self._asked
        if all_in and self._is_enough() and not self._over.done():
            self._over.set_result(None)

    def _is_enough(self) -> bool:
        if self.asks.requests:
            return self._asked >= self.asks.requests
        return time.monotonic() >= self._until_s

    def fail(self, problem: str) -> None:
        """The run is over, and says why."""
        if not self._over.done():
            self._over.set_exception(RuntimeError(problem))

    async def drive(self) -> Measured:
        """Opens the lanes and waits for the last answer."""
        loop = asyncio.get_running_loop()
        began_s, cpu_s = time.monotonic(), time.process_time()
        opened = [
            loop.create_connection(lambda: Lane(self), "127.0.0.1", self.asks.port)
            for _ in range(self.asks.lanes)
        ]
        lanes = await asyncio.gather(*opened)
        try:
            await self._over
        finally:
            for transport, _ in lanes:
                transport.abort()
            await asyncio.sleep(0)
        return self.result.measured(time.monotonic() - began_s, time.process_time() - cpu_s)


def body_of(asks: Asks, prompt: str) -> bytes:
    """A chat request as a client would send it."""
    told = f"{prompt} in step" if asks.stream == "in-step" else prompt
    messages = [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": told},
    ]
    body = {"model": asks.model, "messages": messages, "max_tokens": 64, "temperature": 0}
    if asks.stream:
        body["stream"] = True
    return json.dumps(body).encode()


def is_whole(buffer: bytes) -> bool:
    """Whether an answer has arrived to its end."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = buffer[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return buffer.endswith(b"\r\n0\r\n\r\n")  # in chunks, without trailers
    return len(buffer) >= end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])


async def run(asks: Asks, key: str) -> Measured:
    """One run from connecting to the last answer."""
    return await Run(asks, key).drive()


def main() -> int:
    """Runs what the options say and prints the result as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--stream", choices=["", "spread", "in-step"], default="")
    parser.add_argument("--prompt-bytes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    asks = Asks(**given)
    try:
        result = uvloop.run(run(asks, os.environ.get(KEY_VARIABLE, "none")))
    except (RuntimeError, OSError) as error:
        print(f"gateway load: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
