"""How fast the simulator is, and what a long run needs.

    python bench/simulate.py [--rounds 3] [--traces ../shared/data/traces] [--quick] [--json]

Requests simulated in a second of wall time, `simulate()` alone (reading the trace is not counted),
on llama-3.1-8b on an H100 with all blocks accounted for. Beside each case stand

- the same run step by step, without jumps, whose events must be the same to the last one;
- the same run by a compiled copy of the same source, whose events must be the same too (its
  targets are those of the case: `python bench/compiled.py` makes one);
- other simulators on the same requests, where they are installed (`simulators.py`; `python
  bench/peers.py vidur ai-dynamo`).

Then a day of 1,000,000 requests in a process of its own, for its memory; twice the requests, for
twice the time; and more replicas with as much to do each, for the time of a request.

Targets: 20,000, 6,000 and 1,500 requests a second; 2 GiB; twice the requests in 2.4 times the time;
a request among 64 replicas in twice the time of one among 4.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import compiled
import simulators
from peers import installed_versions
from ridgeline.errors import LaunchError
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
FLEETS, MORE_REPLICAS = (1, 4, 16, 64), 2.0
PER_REPLICA_PER_S = 3.0  # requests, so that each replica is as busy in every fleet
SLOW_PEER_REQUESTS = 3_000  # of Vidur, which takes minutes for a whole trace


@dataclass(frozen=True, slots=True)
class Case:
    """A trace on so many replicas, what is asked of it, and which peers can run it."""

    name: str
    trace: str
    replicas: int
    target_per_s: float
    peers: tuple[str, ...] = ("ai-dynamo", "vidur")


CASES = (
    Case("Azure conversation, 1 replica", "azure2023_conv.csv.gz", 1, 20_000),
    Case("Azure conversation, 4 replicas, prefix routing", "azure2023_conv.csv.gz", 4, 6_000),
    # Vidur takes no block hashes from a trace.
    Case(
        "Mooncake conversation, 16 replicas",
        "mooncake_conversation.jsonl.gz",
        16,
        1_500,
        ("ai-dynamo",),
    ),
)
PEERS: dict[str, Callable[[simulators.Case], float]] = {
    "vidur": simulators.vidur_s,
    "ai-dynamo": simulators.dynosim_s,
}


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


@dataclass(frozen=True, slots=True)
class Loaded:
    """A case with its requests."""

    case: Case
    requests: Sequence[Request]
    block_tokens: int

    @property
    def platform(self) -> Serving:
        """What they are asked of."""
        return serving(self.case.replicas, self.block_tokens)

    def per_s(self, platform: Serving | None = None) -> tuple[float, str]:
        """Requests a second, and the digest of the events."""
        took_s, outcome = timed(platform or self.platform, self.requests, self.block_tokens)
        return outcome.requests / took_s, outcome.digest


def load(case: Case, traces: Path, most: int | None) -> Loaded:
    """Read its trace."""
    trace = read_trace(traces / case.trace, limit=most)
    return Loaded(case, trace.requests, trace.block_tokens or 16)


def speed(loaded: Loaded, rounds: int) -> Row:
    """Requests a second, beside step by step."""
    stepping = replace(loaded.platform, jumps=False)
    ours, peer = [], []
    for _ in range(rounds):
        jumped, digest = loaded.per_s()
        stepped, same = loaded.per_s(stepping)
        assert digest == same, f"{loaded.case.name}: a jump has changed something"
        ours.append(jumped)
        peer.append(stepped)
    say(f"{loaded.case.name}: {max(ours):,.0f} requests/s")
    row = compared(loaded.case.name, "requests/s", ours, peer)
    return bounded(row, loaded.case.target_per_s)


def compiled_speed(loaded: Loaded, home: Path, traces: Path, rounds: int) -> Row:
    """Requests a second of the compiled copy, beside the source as it is."""
    ours, peer = [], []
    for _ in range(rounds):
        plain, digest = loaded.per_s()
        asked = [CASES.index(loaded.case), len(loaded.requests), str(traces)]
        faster, same = json.loads(_child("--one", json.dumps(asked), path=home))
        assert digest == same, f"{loaded.case.name}: compiling has changed something"
        ours.append(faster)
        peer.append(plain)
    name = f"{loaded.case.name}, compiled, beside the source"
    say(f"{name}: {max(ours):,.0f} requests/s")
    return bounded(compared(name, "requests/s", ours, peer), loaded.case.target_per_s)


def one(asked: str) -> None:
    """The child: a case, warm, its speed and digest on standard output."""
    index, most, traces = json.loads(asked)
    loaded = load(CASES[index], Path(traces), most)
    replace(loaded, requests=loaded.requests[:500]).per_s()
    print(json.dumps(loaded.per_s()))


def beside(loaded: Loaded, peer: str, rounds: int) -> Row:
    """Requests a second beside another simulator, on the same requests."""
    if peer == "vidur":
        loaded = replace(loaded, requests=loaded.requests[:SLOW_PEER_REQUESTS])
    engine = loaded.platform.models[0].engine
    case = simulators.Case(loaded.requests, loaded.block_tokens, loaded.case.replicas, engine)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(loaded.per_s()[0])
        theirs.append(len(loaded.requests) / PEERS[peer](case))
    name = f"{loaded.case.name}, beside {peer}"
    say(f"{name}: {max(theirs):,.0f} requests/s")
    return compared(name, "requests/s", ours, theirs)


def linear(requests: int) -> Row:
    """The time of twice the requests, beside that of once."""
    once, twice = (list(itertools.islice(day(), count)) for count in (requests, 2 * requests))
    platform = serving(2, 16)
    ours, peer = [], []
    for _ in range(3):
        peer.append(timed(platform, once, 16)[0])
        ours.append(timed(platform, twice, 16)[0])
    return compared("twice the requests", "s", ours, peer, target=LINEAR, better=Better.LESS)


def fleets(requests: int) -> list[Row]:
    """The time of a request among more replicas, each with as much to do; beside 4 of them."""
    took_us = {}
    for replicas in FLEETS:
        count = requests * replicas
        asked = list(itertools.islice(day(PER_REPLICA_PER_S * replicas), count))
        took_us[replicas] = 1e6 * timed(serving(replicas, 16), asked, 16)[0] / count
        say(f"{replicas} replicas: {took_us[replicas]:.0f} us a request")
    rows = []
    for replicas, each_us in took_us.items():
        name = f"a request among {replicas} replicas"
        target = MORE_REPLICAS if replicas == max(FLEETS) else None
        row = compared(name, "us", [each_us], [took_us[4]], target=target, better=Better.LESS)
        rows.append(row)
    return rows


def day(rate_per_s: float = DAY_REQUESTS / DAY_S) -> Iterator[Request]:
    """Requests of a day, endless."""
    return synthetic(
        parse_arrivals("gamma:2"),
        parse_sizes("lognormal:1000:0.8", where="prompt"),
        parse_sizes("lognormal:200:0.8", where="output"),
        rate_per_s=rate_per_s,
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
    told = _child("--a-day").split()
    count, peak, per_s = int(told[0]), float(told[1]), float(told[2])
    name = f"a day of {count:,} requests, 4 replicas"
    memory = measured(f"{name}: memory", "bytes", peak, better=Better.LESS)
    return [bounded(memory, DAY_BYTES), measured(f"{name}: speed", "requests/s", per_s)]


def _child(*arguments: str, path: Path | None = None) -> str:
    """What this file prints in a process of its own, with another copy of ridgeline first."""
    env = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def measure(options: argparse.Namespace) -> Record:
    """All of it."""
    rounds, most = (1, 2_000) if options.quick else (options.rounds, None)
    notes = ["peer: the same run step by step where no other is named; all events are the same"]
    loads = [load(case, options.traces, most) for case in CASES]
    rows = [speed(loaded, rounds) for loaded in loads]
    try:
        home = compiled.build()
        rows += [compiled_speed(loaded, home, options.traces, rounds) for loaded in loads]
    except LaunchError as error:
        notes.append(f"not compiled: {error}")
    there = {name: installed_versions(name) for name in PEERS}
    for name, versions in there.items():
        if not versions:
            notes.append(f"{name} is not installed: python bench/peers.py {name}")
        for loaded in loads if versions else ():
            if name in loaded.case.peers:
                rows.append(beside(loaded, name, rounds))
    rows.append(linear(2_000 if options.quick else 20_000))
    rows += fleets(200 if options.quick else 2_000)
    if not options.quick:
        rows += long_run()
    versions = {name: found[name] for name, found in there.items() if found}
    return Record("simulate", rows, options.quick, notes, peer_versions=versions)


def main() -> int:
    """Command line; 2 where the traces are not there, or a peer fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--a-day", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.a_day:
        a_day()
        return 0
    if options.one:
        one(options.one)
        return 0
    if not options.traces.is_dir():
        print(f"simulate bench: {options.traces} is not here: --traces FOLDER", file=sys.stderr)
        return 2
    try:
        record = measure(options)
    except LaunchError as error:
        print(f"simulate bench: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=options.json, peer="peer")


if __name__ == "__main__":
    sys.exit(main())
