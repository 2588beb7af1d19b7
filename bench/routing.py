"""Routing beside other routers: the same talks over the same fake replicas, one router at a time.

    python bench/routing.py [--peer smg,...] [--case chats] [--rounds 3] [--quick] [--json]

Law of this file: everything is paired. In a round every router plays the same case, with the same
arrivals and lengths and a text of its own, and the order turns from round to round; ratios are
medians over rounds. Ours is our gateway with its rule `prefix-sticky`; its other rules stand beside
it as routers of their own, the peers in Rust at their defaults for cache-aware routing.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import median

from engine import leave
from hf_model import BENCH_DIR
from peers import install
from ridgeline.errors import RidgelineError
from ridgeline.serving.simulate.talks import chats, heavy_tail, of_trace
from ridgeline.workload import read_trace
from routing_fleet import PEERS, RULES, Machine, replica, router
from routing_load import Case, Run, play
from rows import Better, Record, Row, add_options, bounded, compared, measured, report, say
from servers import Server

OURS = RULES[0]
BESIDE = ("least-load", "round-robin")
TTFT_S = 1.0  # in time, for goodput
PAR = 1.05  # two runs of the same router differ by as much
FEWER = 1 / 4  # prefilled tokens beside least load, on chats (S066)
EVEN = 1.3
QUICKER = 1 / 2  # p99 beside round robin, on a heavy tail (S187)
MOST_TOKENS = 100_000  # longer prompts of the trace are left out: a fake takes 131,072
TRACE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "mooncake_synthetic.jsonl.gz"

Taken = Mapping[str, Mapping[str, list[Run]]]


def cases(options: argparse.Namespace) -> list[Case]:
    """Ten-turn chats, the same behind a system prompt, a heavy tail, and a recorded trace."""
    size, spread = (0.2 if options.quick else 1.0), options.replicas / 8
    talks = {"said_tokens": 200, "answer_tokens": 60, "think_s": 1.0}
    count, per_s = round(100 * size), 6.0 * spread
    found = [
        Case("chats", chats(count, per_s=per_s, **talks)),
        Case(
            "chats, one system prompt",
            chats(count, per_s=per_s, system_tokens=1024, **talks),
            system_tokens=1024,
        ),
        Case("heavy tail", heavy_tail(round(900 * size), per_s=32.0 * spread, answer_tokens=30)),
    ]
    if TRACE.exists():
        trace = read_trace(TRACE)
        fitting = (one for one in trace.requests if one.prompt_tokens < MOST_TOKENS)
        recorded = of_trace(islice(fitting, round(300 * size)), speed=2.0 * spread)
        found.append(Case("mooncake", recorded, block_tokens=trace.block_tokens))
    return [one for one in found if one.name in (options.case or [each.name for each in found])]


async def measure(options: argparse.Namespace) -> Record:
    """Every router in every case, round after round."""
    versions = {name: install(name)[name] for name in options.peer}
    names = [OURS, *BESIDE, *options.peer]
    loads, machine = cases(options), Machine()
    taken: dict[str, dict[str, list[Run]]] = {
        case.name: {name: [] for name in names} for case in loads
    }
    with ExitStack() as stack:
        replicas = [replica(number, machine) for number in range(options.replicas)]
        for one in replicas:
            stack.callback(one.stop)
        for one in replicas:
            await one.until_answers()
        for round_ in range(options.rounds):
            order = names[round_ % len(names) :] + names[: round_ % len(names)]
            for case in loads:
                for name in order:
                    run = await _through(name, case, replicas, f"{round_}/{case.name}/{name}")
                    taken[case.name][name].append(run)
    return Record(
        bench="routing",
        rows=rows(taken, options.peer),
        quick=options.quick,
        notes=[
            f"{options.replicas} fake replicas ({machine}), {options.rounds} round(s); peers at "
            f"their defaults for cache-aware routing; load: requests at a replica, mean over time."
        ],
        details={
            case: {name: [asdict(run) for run in runs] for name, runs in by_name.items()}
            for case, by_name in taken.items()
        },
        peer_versions=versions,
    )


async def _through(name: str, case: Case, replicas: Sequence[Server], salt: str) -> Run:
    """One case through one router, started for it and stopped again."""
    server = router(name, [one.url for one in replicas])
    try:
        await server.until_answers()
        run = await play(case, server, replicas, salt)
    finally:
        server.stop()
    say(
        f"  {case.name:26} {name:14} prefilled {run.prefilled_tokens:>9,.0f}"
        f"   max/mean {run.max_over_mean:.2f}   ttft p99 {1e3 * run.ttft_p99_s:6.0f} ms"
        f"   total p99 {run.total_p99_s:5.2f} s   in time {run.goodput_per_s(TTFT_S):5.2f}/s"
    )
    return run


def rows(taken: Taken, peers: Sequence[str]) -> list[Row]:
    """The four measures of each case beside every other router, with the targets."""
    found: list[Row] = []
    for case, by_name in taken.items():
        ours = by_name[OURS]
        even = [run.max_over_mean for run in ours]
        load = measured(f"{case}: max/mean load", "x", median(even), better=Better.LESS)
        found.append(bounded(load, EVEN) if case.startswith("chats") else load)
        for name in (*BESIDE, *peers):
            found += _beside(case, name, ours, by_name[name], is_peer=name in peers)
    return found


def _beside(
    case: str, name: str, ours: Sequence[Run], other: Sequence[Run], *, is_peer: bool
) -> list[Row]:
    par = PAR if is_peer else None
    fewer = FEWER if name == "least-load" and case.startswith("chats") else par
    quicker = QUICKER if name == "round-robin" and not case.startswith("chats") else par
    return [
        compared(
            f"{case}: prefilled, {name}",
            "tokens",
            [run.prefilled_tokens for run in ours],
            [run.prefilled_tokens for run in other],
            target=fewer,
            better=Better.LESS,
        ),
        compared(
            f"{case}: TTFT p99, {name}",
            "ms",
            [1e3 * run.ttft_p99_s for run in ours],
            [1e3 * run.ttft_p99_s for run in other],
            target=quicker,
            better=Better.LESS,
        ),
        compared(
            f"{case}: total p99, {name}",
            "s",
            [run.total_p99_s for run in ours],
            [run.total_p99_s for run in other],
            better=Better.LESS,
        ),
        compared(
            f"{case}: in time, {name}",
            "requests/s",
            [run.goodput_per_s(TTFT_S) for run in ours],
            [max(run.goodput_per_s(TTFT_S), 1e-9) for run in other],
            target=1 / PAR if is_peer else None,
        ),
    ]


def _peers(text: str) -> list[str]:
    names = [name for name in dict.fromkeys(text.split(",")) if name]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}: {', '.join(PEERS)}")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--peer", type=_peers, default=list(PEERS), metavar=",".join(PEERS))
    parser.add_argument("--case", action="append", help="only this one; repeatable")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def main() -> int:
    """Runs the comparison; 1 when a target is missed, 2 when it could not be measured."""
    options = _options()
    signal.signal(signal.SIGTERM, leave)
    BENCH_DIR.mkdir(exist_ok=True)
    try:
        record = asyncio.run(measure(options))
    except RidgelineError as error:
        print(f"routing bench: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=options.json, ours=OURS, peer="beside")


if __name__ == "__main__":
    sys.exit(main())
