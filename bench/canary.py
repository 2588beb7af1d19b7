"""Whether the gate of rollouts tells a slower version from an equal one, on real engines.

    python bench/canary.py [--canaries 6] [--seed 0] [--quick] [--json]

Starts `ridgeline up` with the default model, one thread a replica, and rolls out version after
version, each for half of the requests, while somebody asks one thing after the other. A/A: a
version with a slot less, which nobody uses: it has to be promoted. A/B: one that reads prompts in
pieces of few tokens (how few is drawn from the seed), so that each takes many steps: it has to go
back. Beside the requests that this took stands what the gate had planned, by how TTFT varied
before; where time per token varies more it waits longer.

Targets: of A/A no more go back than chance allows (5 % each), and every A/B does.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

import aiohttp

from platforms import MODEL, up
from rows import Better, Record, Row, add_options, bounded, compared, measured, report, say

SLOTS = 24  # as few as the smallest piece: a step has a token for each
#: Tokens of a step: a prompt of about 130 needs one with the default, and so many more with these.
PIECES = (24, 32, 64)
WORDS = ("time", "year", "hand", "part", "life", "case", "week", "work")
PROMPT_WORDS, OUTPUT_TOKENS = 128, 12
#: What the gate promises: of equal versions at most so many go back.
ALPHA = 0.05
#: How seldom this benchmark may be short where the gate keeps that.
CHANCE = 0.01
MOST_S, LOOK_S = 900.0, 0.25


@dataclass(frozen=True, slots=True)
class Canary:
    """One rollout that has ended."""

    went_back: bool
    reason: str
    requests: int
    planned: int
    ttft_ratio: float


def spec(folder: Path) -> Path:
    """One replica, with a database that commands find too."""
    path = folder / "platform.yaml"
    path.write_text(
        f"""
name: canary
models:
  - name: {MODEL}
    model: {MODEL}
    engine: {{threads: 1, max_seqs: {SLOTS}, max_model_len: 1024, kv_cache: 100MB}}
    routing: {{policy: least-load}}
gateway: {{listen: "127.0.0.1:0", database: "sqlite:///{folder}/canary.db"}}
"""
    )
    return path


@asynccontextmanager
async def asked(url: str, seed: int) -> AsyncIterator[None]:
    """Somebody asks, one request after the other, no two alike. A request that fails ends it."""
    chance, ends = random.Random(seed), asyncio.Event()

    async def ask() -> None:
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            while not ends.is_set():
                prompt = " ".join(chance.choices(WORDS, k=PROMPT_WORDS))
                body = {"model": MODEL, "prompt": prompt, "max_tokens": OUTPUT_TOKENS}
                stream = {**body, "stream": True, "ignore_eos": True}
                async with session.post(f"{url}/v1/completions", json=stream) as answer:
                    await answer.read()

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        ends.set()
        await task


async def canary(url: str, platform: Path, setting: str) -> Canary:
    """A rollout to the version with this setting, up to its end."""
    command = [sys.executable, "-m", "ridgeline", "rollout", "start", MODEL, str(platform)]
    options = ["--engine", setting, "--steps", "50%", "--keep", "0s"]
    async with aiohttp.ClientSession() as session, asyncio.timeout(MOST_S):
        before = (await _last(session, url)).get("id")
        rollout = [*command, *options]
        await asyncio.to_thread(subprocess.run, rollout, check=True, capture_output=True)
        while True:
            told = await _last(session, url)
            if told.get("id") != before and told["phase"] in ("done", "back"):
                break
            await asyncio.sleep(LOOK_S)
    if "requests" not in (evidence := told["evidence"]):
        raise RuntimeError(f"{setting} was never asked: {told['reason']}")
    ratios = {gate["name"]: gate["ratio"] for gate in evidence["gates"]}
    new, planned = evidence["requests"]["new"], evidence["planned"]
    found = Canary(told["phase"] == "back", told["reason"], new, planned, ratios["TTFT"])
    say(f"{setting}: {told['phase']} after {new} of {planned}: {found.reason}")
    return found


async def _last(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(f"{url}/console/models.json") as answer:
        rollouts: list[dict[str, Any]] = (await answer.json())["rollouts"]
    return rollouts[0] if rollouts else {}


async def played(count: int, seed: int) -> tuple[list[Canary], list[Canary], list[int]]:
    """So many of each kind, and the pieces that were drawn."""
    chance = random.Random(seed)
    pieces = [chance.choice(PIECES) for _ in range(count)]
    with tempfile.TemporaryDirectory() as name:
        platform = spec(Path(name))
        async with up(str(platform)) as running, asked(running.url, seed):
            url = running.url
            equal = [await canary(url, platform, f"max_seqs={SLOTS - 1 - n}") for n in range(count)]
            slower = [
                await canary(url, platform, f"max_batched_tokens={piece}") for piece in pieces
            ]
    return equal, slower, pieces


def allowed(count: int) -> int:
    """So many of equal versions go back by chance; more would be, with less than `CHANCE`."""
    left = 1.0
    for number in range(count + 1):
        left -= comb(count, number) * ALPHA**number * (1 - ALPHA) ** (count - number)
        if left < CHANCE:
            return number
    return count


def rows_of(equal: Sequence[Canary], slower: Sequence[Canary]) -> list[Row]:
    """How many went back, after how many requests, and how slow they were."""
    count = len(equal)
    back = [sum(one.went_back for one in some) for some in (equal, slower)]
    false = measured("A/A: sent back", f"of {count}", back[0], better=Better.LESS)
    true = measured("A/B: sent back", f"of {count}", back[1])
    found = [bounded(false, allowed(count)), bounded(true, count)]
    for case, some in (("A/A", equal), ("A/B", slower)):
        requests, planned = [one.requests for one in some], [one.planned for one in some]
        name = f"{case}: requests of the new version"
        found.append(compared(name, "requests", requests, planned, better=Better.LESS))
        ratios = [one.ttft_ratio for one in some]
        name = f"{case}: its TTFT beside the old one's"
        found.append(compared(name, "times", ratios, [1.0] * count, better=Better.LESS))
    return found


def main() -> int:
    """Play both kinds, print; 1 where the gate did not keep its promise, 2 where it broke."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--canaries", type=int, default=6, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = 2 if options.quick else options.canaries
    load = os.getloadavg()[0]
    try:
        equal, slower, pieces = asyncio.run(played(count, options.seed))
    except (aiohttp.ClientError, RuntimeError, TimeoutError, subprocess.CalledProcessError) as err:
        if isinstance(err, subprocess.CalledProcessError):
            print((err.stderr or b"").decode(), file=sys.stderr)
        print(f"canary bench: {err!r}", file=sys.stderr)
        return 2
    notes = [
        f"Pieces of A/B: {', '.join(map(str, pieces))} tokens. Load average before: {load:.1f}."
    ]
    details = {
        "equal": [one.reason for one in equal],
        "slower": [one.reason for one in slower],
        "load_average_before": load,
    }
    record = Record("canary", rows_of(equal, slower), options.quick, notes, details)
    return report(record, as_json=options.json, peer="planned")


if __name__ == "__main__":
    sys.exit(main())
