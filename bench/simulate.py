"""How fast the simulator is, and what a long run needs.

    python bench/simulate.py [--rounds 3] [--traces ../shared/data/traces] [--quick] [--json]

Requests simulated in a second of wall time, `simulate()` alone (reading the trace is not counted),
on llama-3.1-8b on an H100 with all blocks accounted for. Beside each case stands the same run step
by step, without jumps, whose events must be the same to the last one. Then a day of 1,000,000
requests in a process of its own, for its memory; and twice the requests, for twice the time.

Targets: 20,000, 6,000 and 1,500 requests a second; 2 GiB; twice the requests in 2.4 times the time.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, parse_arrivals, parse_sizes, read_trace, synthetic
from rows import Better, Record, Row, add_options, bounded, compared, measured, report, say

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
DAY_S, DAY_REQUESTS, DAY_BYTES = 86_400.0, 1_000_000, 2 * 1024**3
LINEAR = 2.4


@dataclass(frozen=True, slots=True)
class Case:
    """A trace on so many replicas, and what is asked of it."""

    name: str
    trace: str
    replicas: int
    target_per_s: float


CASES = (
    Case("Azure conversation, 1 replica", "azure2023_conv.csv.gz", 1, 20_000),
    Case("Azure conversation, 4 replicas, prefix routing", "azure2023_conv.csv.gz", 4, 6_000),
    Case("Mooncake conversation, 16 replicas", "mooncake_conversation.jsonl.gz", 16, 1_500),
)


def serving(replicas: int, block_tokens: int, *, jumps: bool = True) -> Serving:
    """The platform of every case."""
    engine = Engine(machine("llama-3.1-8b", "h100-sxm"), block_tokens=block_tokens)
    return Serving((Model("chat", engine, replicas),), jumps=jumps)


def timed(
    platform: Serving, requests: Sequence[Request], block_tokens: int
) -> tuple[float, Outcome]:
    """Seconds of a run, and its outcome."""
    clients = OpenLoop(requests, "chat", block_tokens=block_tokens)
    began_s = time.perf_counter()
    outcome = simulate(platform, clients)
    return time.perf_counter() - began_s, outcome


def speed(case: Case, traces: Path, rounds: int, most: int | None) -> Row:
    """Requests a second, beside step by step."""
    trace = read_trace(traces / case.trace, limit=most)
    block_tokens = trace.block_tokens or 16
    jumping = serving(case.replicas, block_tokens)
    stepping = replace(jumping, jumps=False)
    ours, peer = [], []
    for _ in range(rounds):
        jumped_s, jumped = timed(jumping, trace.requests, block_tokens)
        stepped_s, stepped = timed(stepping, trace.requests, block_tokens)
        assert jumped.digest == stepped.digest, f"{case.name}: a jump has changed something"
        ours.append(jumped.requests / jumped_s)
        peer.append(stepped.requests / stepped_s)
    say(f"{case.name}: {max(ours):,.0f} requests/s")
    return bounded(compared(case.name, "requests/s", ours, peer), case.target_per_s)


def linear(requests: int) -> Row:
    """The time of twice the requests, beside that of once."""
    once, twice = (list(itertools.islice(day(), count)) for count in (requests, 2 * requests))
    platform = serving(2, 16)
    ours, peer = [], []
    for _ in range(3):
        peer.append(timed(platform, once, 16)[0])
        ours.append(timed(platform, twice, 16)[0])
    return compared("twice the requests", "s", ours, peer, target=LINEAR, better=Better.LESS)


def day() -> Iterator[Request]:
    """Requests of a day, endless."""
    return synthetic(
        parse_arrivals("gamma:2"),
        parse_sizes("lognormal:1000:0.8", where="prompt"),
        parse_sizes("lognormal:200:0.8", where="output"),
        rate_per_s=DAY_REQUESTS / DAY_S,
        seed=1,
    )


def a_day() -> None:
    """The child: a day, and then its peak memory and its speed on standard output."""
    requests = itertools.islice(day(), DAY_REQUESTS)
    began_s = time.perf_counter()
    outcome = simulate(serving(4, 16), OpenLoop(requests, "chat"))
    took_s = time.perf_counter() - began_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(outcome.requests, peak, outcome.requests / took_s)


def long_run() -> list[Row]:
    """A day in a process of its own."""
    told = subprocess.run(
        [sys.executable, __file__, "--a-day"], check=True, capture_output=True, text=True
    ).stdout.split()
    count, peak, per_s = int(told[0]), float(told[1]), float(told[2])
    name = f"a day of {count:,} requests, 4 replicas"
    memory = measured(f"{name}: memory", "bytes", peak, better=Better.LESS)
    return [bounded(memory, DAY_BYTES), measured(f"{name}: speed", "requests/s", per_s)]


def main() -> int:
    """Command line; 2 where the traces are not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--a-day", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.a_day:
        a_day()
        return 0
    if not options.traces.is_dir():
        print(f"simulate bench: {options.traces} is not here: --traces FOLDER", file=sys.stderr)
        return 2
    rounds, most = (1, 2_000) if options.quick else (options.rounds, None)
    rows = [speed(case, options.traces, rounds, most) for case in CASES]
    rows.append(linear(2_000 if options.quick else 20_000))
    if not options.quick:
        rows += long_run()
    notes = ["peer: the same run step by step; its events are the same, to the last one"]
    record = Record("simulate", rows, options.quick, notes)
    return report(record, as_json=options.json, peer="step by step")


if __name__ == "__main__":
    sys.exit(main())
