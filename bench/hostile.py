"""What hostile clients do to the others: their time per token must move by less than 20 %.

    python bench/hostile.py [--rounds 3] [--quick] [--json]

A few well-behaved streams run against `ridgeline up`, alone and beside clients that send huge
prompts, broken JSON, absurd numbers and a hundred thousand stop strings, that drip their headers
(slow loris), and that send half a request and keep the connection. Alone and beside are paired
and interleaved. Each kind of hostile request must be answered with a 4xx or dropped.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import suppress
from statistics import mean
from urllib.parse import urlsplit

import aiohttp

from platforms import MODEL, up
from rows import Better, Record, Row, add_options, compared, report

STREAMS = 4
TOKENS = 64
#: A well-behaved stream may get slower by a fifth.
MOST_RATIO = 1.2
#: Between two requests of one hostile client: a flood would measure sockets, not the server.
PAUSE_S = 0.2

BODIES: dict[str, bytes] = {
    "10 MB prompt": json.dumps({"model": MODEL, "prompt": "a " * 5_000_000}).encode(),
    "prompt beyond the context": json.dumps({"model": MODEL, "prompt": "a b " * 20_000}).encode(),
    "invalid UTF-8": b'{"model": "' + b"\xff\xfe" * 100 + b'"}',
    "broken JSON": b'{"model": ',
    "deep JSON": b"[" * 100_000,
    "NaN temperature": f'{{"model": "{MODEL}", "prompt": "a", "temperature": NaN}}'.encode(),
    "negative max_tokens": json.dumps({"model": MODEL, "prompt": "a", "max_tokens": -1}).encode(),
    "100,000 stop strings": json.dumps(
        {"model": MODEL, "prompt": "a", "stop": [f"s{i}" for i in range(100_000)]}
    ).encode(),
}


async def tpot_s(session: aiohttp.ClientSession, url: str, number: int) -> float:
    """One well-behaved stream: its mean time per token after the first."""
    body = {
        "model": MODEL,
        "prompt": f"Request {number}: count to a hundred.",
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    first_s = last_s = 0.0
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                last_s = time.perf_counter()
                first_s = first_s or last_s
    return (last_s - first_s) / (TOKENS - 1)


async def well_behaved(url: str, seconds: float) -> float:
    """Streams for a while; the mean time per token over all of them."""
    until = time.perf_counter() + seconds
    measured: list[float] = []

    async def one(lane: int) -> None:
        number = lane
        async with aiohttp.ClientSession() as session:
            while time.perf_counter() < until:
                measured.append(await tpot_s(session, url, number))
                number += STREAMS

    await asyncio.gather(*(one(lane) for lane in range(STREAMS)))
    return mean(measured)


async def send_bodies(url: str, answers: Counter[str]) -> None:
    """Every hostile body in turn, again and again; the answers are counted by kind and status."""
    async with aiohttp.ClientSession() as session:
        while True:
            for kind, body in BODIES.items():
                try:
                    async with session.post(
                        f"{url}/v1/completions",
                        data=body,
                        headers={"content-type": "application/json"},
                    ) as answer:
                        await answer.read()
                        answers[f"{kind}: {answer.status}"] += 1
                except aiohttp.ClientError:
                    answers[f"{kind}: dropped"] += 1
                await asyncio.sleep(PAUSE_S)


async def drip(url: str, answers: Counter[str]) -> None:
    """Slow loris: a header byte now and then, for as long as the server lets it."""
    at = urlsplit(url)
    while True:
        _, writer = await asyncio.open_connection(at.hostname, at.port)
        with suppress(ConnectionError):
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-slow: ")
            while not writer.is_closing():
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(PAUSE_S)
        answers["slow loris: dropped"] += 1


async def half(url: str, answers: Counter[str]) -> None:
    """Half a body, then the sending side is closed or silent until the server has had enough."""
    at = urlsplit(url)
    while True:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
        writer.write_eof()
        with suppress(ConnectionError):
            status = (await reader.read(12))[9:].decode() or "dropped"
            answers[f"half a request: {status}"] += 1
        writer.close()
        await asyncio.sleep(PAUSE_S)


async def beside_hostile(url: str, seconds: float, answers: Counter[str]) -> float:
    """The same streams while every kind of hostile client is at work."""
    hostile = [
        asyncio.create_task(attack(url, answers)) for attack in (send_bodies, half, *[drip] * 32)
    ]
    try:
        return await well_behaved(url, seconds)
    finally:
        for task in hostile:
            task.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)


async def measure(rounds: int, seconds: float) -> tuple[list[float], list[float], Counter[str]]:
    """Alone and beside, in turn."""
    answers: Counter[str] = Counter()
    alone, beside = [], []
    async with up() as platform:
        await well_behaved(platform.url, 2)
        for _ in range(rounds):
            alone.append(await well_behaved(platform.url, seconds))
            beside.append(await beside_hostile(platform.url, seconds, answers))
    return alone, beside, answers


def rows_of(alone: list[float], beside: list[float], answers: Counter[str]) -> list[Row]:
    """The ratio, and each kind of answer: anything but a 4xx or a drop is a failure."""
    ms = [[1e3 * value for value in values] for values in (beside, alone)]
    slower = compared(
        "time per token beside hostile clients", "ms", *ms, target=MOST_RATIO, better=Better.LESS
    )
    told = [
        Row(f"answered {kind}", "times", count, ok=kind.split(": ")[1][0] in "4d")
        for kind, count in sorted(answers.items())
    ]
    return [slower, *told]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds, seconds = (1, 8.0) if options.quick else (options.rounds, 20.0)
    record = Record("hostile", rows_of(*asyncio.run(measure(rounds, seconds))), options.quick)
    sys.exit(report(record, as_json=options.json, ours="beside", peer="alone"))


if __name__ == "__main__":
    main()
