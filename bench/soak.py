"""64 concurrent streams with random cancels against a real platform: nothing may leak.

    python bench/soak.py [--minutes 10] [--streams 64] [--quick] [--json]

Starts `ridgeline up` with the default model and keeps the streams going: a third of them leave at
a random moment, the others read to the end. Watches the resident memory of every process. At the
end: every stream that was read ended with [DONE], every block and request is free, in-flight
counts are 0, and memory stopped growing. Exit status 1 where one of these does not hold.
"""

import argparse
import asyncio
import random
import re
import sys
import time
from dataclasses import dataclass, field

import aiohttp
import psutil

from platforms import MODEL, up
from rows import Record, Row, add_options, report

#: Memory may still settle by this share between the second half's start and its end.
FLAT_WITHIN = 0.05
CANCELLED_SHARE = 1 / 3


@dataclass
class Tally:
    """What became of the streams."""

    ended: int = 0
    cancelled: int = 0
    torn: int = 0
    refused: int = 0
    tokens: int = 0
    rss_bytes: list[tuple[float, int]] = field(default_factory=list)


async def stream_once(
    session: aiohttp.ClientSession, url: str, chance: random.Random, tally: Tally
) -> None:
    """One stream: read to the end, or left at a random piece."""
    body = {
        "model": MODEL,
        "prompt": " ".join(str(chance.randrange(10**6)) for _ in range(chance.randrange(5, 60))),
        "max_tokens": chance.randrange(8, 96),
        "stream": True,
        "temperature": chance.choice([0, 0.8]),
        "ignore_eos": True,
    }
    leave_after = chance.randrange(1, 40) if chance.random() < CANCELLED_SHARE else None
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        if answer.status != 200:
            tally.refused += 1
            return
        pieces = 0
        async for line in answer.content:
            if line.startswith(b"data: [DONE]"):
                tally.ended += 1
                return
            pieces += line.startswith(b"data: ")
            if leave_after is not None and pieces >= leave_after:
                tally.cancelled += 1
                answer.close()
                return
        tally.torn += 1


async def keep_streaming(url: str, until: float, seed: int, tally: Tally) -> None:
    """One client that asks again and again."""
    chance = random.Random(seed)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while time.monotonic() < until:
            await stream_once(session, url, chance, tally)


async def watch_memory(pid: int, until: float, tally: Tally) -> None:
    """The resident bytes of the whole process tree, every second."""
    leader = psutil.Process(pid)
    while time.monotonic() < until:
        tree = [leader, *leader.children(recursive=True)]
        tally.rss_bytes.append((time.monotonic(), sum(p.memory_info().rss for p in tree)))
        await asyncio.sleep(1)


async def at_rest(url: str) -> dict[str, float]:
    """The gauges that must be 0, once they are or after ten seconds."""
    gauges: dict[str, float] = {}
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            async with session.get(f"{url}/console.json") as answer:
                replicas = (await answer.json())["replicas"]
            gauges = {"in flight at the gateway": sum(r["in_flight"] for r in replicas)}
            for replica in replicas:
                async with session.get(f"{replica['address']}/metrics") as answer:
                    text = await answer.text()
                for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
                    found = re.search(rf"^vllm:{name}{{[^}}]*}} (\S+)", text, re.M)
                    assert found is not None, name
                    gauges[name] = float(found[1])
            if not any(gauges.values()):
                break
            await asyncio.sleep(0.1)
    return gauges


async def soak(minutes: float, streams: int) -> tuple[Tally, dict[str, float]]:
    """Start the platform, load it, look at it at rest, stop it."""
    tally = Tally()
    async with up() as platform:
        until = time.monotonic() + 60 * minutes
        await asyncio.gather(
            watch_memory(platform.pid, until, tally),
            *(keep_streaming(platform.url, until, seed, tally) for seed in range(streams)),
        )
        return tally, await at_rest(platform.url)


def growth(rss_bytes: list[tuple[float, int]]) -> float:
    """How much the last quarter's mean is above the third one's, as a share."""
    values = [value for _, value in rss_bytes]
    quarter = max(1, len(values) // 4)
    before, after = values[-2 * quarter : -quarter] or values[:1], values[-quarter:]
    return (sum(after) / len(after)) / (sum(before) / len(before)) - 1


def rows_of(tally: Tally, gauges: dict[str, float]) -> list[Row]:
    """What must be nought is judged; the rest is told."""
    must_be_nought = {
        "streams that ended without [DONE]": tally.torn,
        "streams refused": tally.refused,
        **{f"at rest: {name}": value for name, value in gauges.items()},
    }
    grown = growth(tally.rss_bytes)
    return [
        Row("streams read to the end", "streams", tally.ended, ok=tally.ended > 0),
        Row("streams left by their client", "streams", tally.cancelled, ok=tally.cancelled > 0),
        *(Row(case, "", value, ok=value == 0) for case, value in must_be_nought.items()),
        Row("memory of all processes, last", "MB", tally.rss_bytes[-1][1] / 1e6),
        Row("memory, growth in the last quarter", "share", grown, ok=grown <= FLAT_WITHIN),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=64)
    options = parser.parse_args()
    minutes = 1.0 if options.quick else options.minutes
    tally, gauges = asyncio.run(soak(minutes, options.streams))
    record = Record("soak", rows_of(tally, gauges), options.quick)
    sys.exit(report(record, as_json=options.json))


if __name__ == "__main__":
    main()
