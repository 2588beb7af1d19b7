"""One server measured at a time, and two measured as a pair.

Law of this file: nothing is compared across time. The two runs of a pair follow each other, the
next round goes the other way round, so that a drift of the machine cancels; every server but the
one that is asked is held still. `bench/engine.py` and `bench/features.py` call it.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psutil

from client import Load, Prompts, Target, drive
from hf_model import BENCH_DIR
from ridgeline.errors import BenchError
from rows import say
from servers import CpuMeter, Launch, Server, Usage, warm_up

OUTPUT_TOKENS = 128
OTHERS_MOST = 0.05  # share of the machine that others may take before a run counts as noisy
WARM_PROMPT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Cell:
    """One size of the comparison."""

    prompt_tokens: int
    concurrency: int

    @property
    def name(self) -> str:
        """As the tables call it: p128 c16."""
        return f"p{self.prompt_tokens} c{self.concurrency}"

    @property
    def size(self) -> tuple[int, int]:
        """The key of the tables of targets."""
        return self.prompt_tokens, self.concurrency

    @property
    def requests(self) -> int:
        """Two waves at the least, so that prompts also meet running decodes."""
        return max(4, 2 * self.concurrency)


@dataclass(frozen=True, slots=True)
class Run:
    """One server's answer to one round of one cell, and whose CPU time it took."""

    load: Load
    usage: Usage


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of one cell, one right after the other; `beside` names what ours is compared to."""

    cell: Cell
    ours: Run
    peer: Run
    beside: str

    @property
    def others(self) -> float:
        """The larger share of the machine that somebody else took during the two runs."""
        return max(self.ours.usage.others, self.peer.usage.others)


@dataclass(frozen=True, slots=True)
class Asked:
    """A server and what every request to it asks for beside its length."""

    server: Server
    asks: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


def run_alone(asked: Asked, idle: Sequence[Server], cell: Cell, prompts: Sequence[str]) -> Run:
    """One closed-loop run with every other server held still."""
    running = asked.server
    sizes = cell.prompt_tokens, OUTPUT_TOKENS
    target = Target(running.url, running.model, *sizes, asks=asked.asks)
    running.resume()
    try:
        meter = CpuMeter(running, idle)
        load = asyncio.run(drive(target, prompts, cell.concurrency))
        run = Run(load, meter.read())
    finally:
        running.pause()
    say(
        f"  {asked.name or running.name:14} {cell.name:9} {load.tokens_per_s:7.1f} tokens/s"
        f"   TTFT {1e3 * load.ttft_s(0.5):6.0f} ms   TPOT {1e3 * load.tpot_s(0.5):6.1f} ms"
        f"   others {100 * run.usage.others:.0f} % of the CPU"
    )
    return run


def in_turn(first: Callable[[], Run], second: Callable[[], Run], round_: int) -> tuple[Run, Run]:
    """Both runs, in an order that changes from round to round, returned in the order given."""
    if round_ % 2:
        later = second()
        return first(), later
    sooner = first()
    return sooner, second()


def seed_of(cell: Cell, round_: int, beside: str) -> int:
    """The prompts of a round's cell: new ones in each round and beside each peer.

    Were they the same beside two peers, ours would find them in its prefix cache.
    """
    peer = 10_000_000 * (zlib.crc32(beside.encode()) % 1000)
    return peer + 1_000_000 * round_ + 1000 * cell.prompt_tokens + cell.concurrency


def start(launch: Launch, role: str, prompts: Prompts, stack: ExitStack) -> tuple[Server, float]:
    """Starts a server alone, warms it up and holds it still; also its seconds to first token."""
    server = Server(launch, BENCH_DIR / f"{role}-{launch.name}.log")
    stack.callback(server.stop)
    started_s = asyncio.run(server.first_token_s())
    texts = prompts.draw(WARM_PROMPT_TOKENS, 4, seed=7)
    asyncio.run(warm_up(server, texts, WARM_PROMPT_TOKENS))
    server.pause()
    say(f"{launch.name} ({role}): first token {started_s:.1f} s after its start")
    return server, started_s


def noise_notes(pairs: Sequence[Pair]) -> list[str]:
    """What a reader must know about these numbers' surroundings."""
    noisy = [pair for pair in pairs if pair.others > OTHERS_MOST]
    if not noisy:
        worst = max(pair.others for pair in pairs)
        return [f"Quiet: others took at most {worst:.1%} of the CPU in any pair."]
    worst = max(pair.others for pair in noisy)
    return [
        f"NOISY, not to be quoted: in {len(noisy)} of {len(pairs)} pairs others took more than "
        f"{OTHERS_MOST:.0%} of the CPU, at most {worst:.0%}."
    ]


def refuse_noise(allowed: bool, *, where: str) -> None:
    """Raises BenchError when the machine is not idle before we start, unless that is allowed."""
    busy = psutil.cpu_percent(interval=2.0) / 100
    if busy > OTHERS_MOST and not allowed:
        raise BenchError(
            f"others use {busy:.0%} of the CPU before anything was started",
            where=where,
            remedy="wait until the machine is idle, or --allow-noise (the result will say so)",
        )


def pair_details(pair: Pair) -> dict[str, Any]:
    """One pair, request by request, for the results file."""
    sides = {"ours": pair.ours, "peer": pair.peer}
    return {"case": pair.cell.name, "beside": pair.beside} | {
        side: {
            "tokens_per_s": run.load.tokens_per_s,
            "wall_s": run.load.wall_s,
            "client_cpu_s": run.load.client_cpu_s,
            "own_cpu_share": run.usage.own,
            "others_cpu_share": run.usage.others,
            "ttft_s": [timing.ttft_s for timing in run.load.timings],
            "tpot_s": [timing.tpot_s for timing in run.load.timings],
        }
        for side, run in sides.items()
    }
