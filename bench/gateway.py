"""What a gateway costs: ours with keys, limits and ledger on, beside LiteLLM and Rust routers.

    python bench/gateway.py [--peer litellm,sglang-router,...] [--rounds 3] [--quick] [--json]

Law of this file: everything is paired. A gateway's run lies between two runs straight to the mock
replica, what it adds is the difference to their mean, and the gateways follow each other within a
round, the order turned from round to round; ratios are medians over rounds. Whoever is measured has
one core to itself, load and mock replica the other, all other gateways are held still.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import counts, leave
from gateway_contenders import KEY, OURS, PEERS, Cores, Gateway, Mock, cores
from gateway_load import KEY_VARIABLE, Measured
from gateway_rows import Added, gateway_rows, rss_row
from hf_model import BENCH_DIR
from mock_upstream import MODEL
from peers import install
from ridgeline.errors import BenchError, RidgelineError
from rows import Record, Row, add_options, report, say
from servers import machine_busy_s

STREAMS = 64
NOISY_SHARE = 0.05  # of the machine
RSS_REQUESTS, RSS_SETTLED = 100_000, 20_000
LOAD_SCRIPT = str(Path(__file__).parent / "gateway_load.py")


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load: whole answers in a closed loop, or streams."""

    lanes: int
    stream: str = ""

    @property
    def name(self) -> str:
        """As the tables call it: c16, or 64 streams in-step."""
        return f"{self.lanes} streams {self.stream}" if self.stream else f"c{self.lanes}"


@dataclass(slots=True)
class Bench:
    """The mock replica, the gateways in front of it, and how noisy it was around them."""

    mock: Mock
    gateways: dict[str, Gateway]
    cores: Cores
    seconds: float
    others: float = 0.0

    def load(self, port: int, key: str, cell: Cell, *more: str) -> Measured:
        """One run of the load against a port. BenchError where a request was not answered."""
        size = ["--requests", str(2 * cell.lanes)] if cell.stream else []
        told = ["--port", str(port), "--model", MODEL, "--lanes", str(cell.lanes)]
        how = ["--stream", cell.stream, "--seconds", str(self.seconds), *size, *more]
        done = subprocess.run(
            ["taskset", "-c", str(self.cores.load), sys.executable, LOAD_SCRIPT, *told, *how],
            env=os.environ | {KEY_VARIABLE: key},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BenchError(f"{cell.name} on port {port}: {done.stderr.strip()[-600:]}")
        return Measured(**json.loads(done.stdout))

    def added(self, name: str, cell: Cell) -> Added:
        """What a gateway adds: direct, through it, direct again."""
        gateway = self.gateways[name]
        before = self.load(self.mock.port, KEY, cell)
        gateway.resume()
        try:
            gateway.until_answers()
            cpu_s, busy_s = gateway.cpu_s(), machine_busy_s() - self._known_s(gateway)
            through = self.load(gateway.port, gateway.key, cell)
            used_s = gateway.cpu_s() - cpu_s
            unknown_s = machine_busy_s() - self._known_s(gateway) - busy_s
        finally:
            gateway.pause()
        after = self.load(self.mock.port, KEY, cell)
        # The load's process is started and ended in this stretch too: about a third of a second.
        strange_s = max(0.0, unknown_s - through.client_cpu_s - 0.35)
        self.others = max(self.others, strange_s / through.wall_s / (os.cpu_count() or 1))
        found = Added(before, through, after, used_s)
        say(f"  {name:14} {cell.name:18} {found}")
        return found

    def _known_s(self, gateway: Gateway) -> float:
        return gateway.cpu_s() + self.mock.cpu_s()

    def rss(self, name: str) -> tuple[int, int]:
        """Resident bytes after the first requests and after all of them, no two prompts alike."""
        gateway, cell = self.gateways[name], Cell(16)
        gateway.resume()
        try:
            gateway.until_answers()
            first = ("--requests", str(RSS_SETTLED), "--prompt-bytes", "2000")
            self.load(gateway.port, gateway.key, cell, *first, "--seed", "1")
            settled = gateway.rss_bytes()
            rest = ("--requests", str(RSS_REQUESTS - RSS_SETTLED), "--prompt-bytes", "2000")
            self.load(gateway.port, gateway.key, cell, *rest, "--seed", "2")
            return settled, gateway.rss_bytes()
        finally:
            gateway.pause()


def start(names: Sequence[str], seconds: float, stack: ExitStack) -> Bench:
    """The mock replica and every gateway, warmed up and held still."""
    cores_ = cores()
    mock = Mock(cores_.mock)
    stack.callback(mock.stop)
    bench = Bench(mock, {}, cores_, seconds)
    for name in names:
        gateway = bench.gateways[name] = Gateway(name, mock.url, cores_.server)
        stack.callback(gateway.stop)
        gateway.until_answers()
        if name == OURS:
            gateway.take_tenant_key()
        bench.load(gateway.port, gateway.key, Cell(16), "--seconds", "2")
        bench.load(gateway.port, gateway.key, Cell(16, "spread"))
        gateway.pause()
        say(f"{name}: ready")
    return bench


def measure(options: argparse.Namespace) -> Record:
    """Every gateway in every cell, round after round."""
    names = [OURS, *options.peer]
    versions = {name: install(name)[name] for name in options.peer}
    cells = [Cell(lanes) for lanes in options.concurrency]
    cells += [Cell(STREAMS, "spread"), Cell(STREAMS, "in-step")]
    taken: dict[str, dict[str, list[Added]]] = {
        cell.name: {name: [] for name in names} for cell in cells
    }
    with ExitStack() as stack:
        bench = start(names, 1.0 if options.quick else 4.0, stack)
        for round_ in range(options.rounds):
            say(f"round {round_ + 1} of {options.rounds}")
            order = names[round_ % len(names) :] + names[: round_ % len(names)]
            for cell in cells:
                for name in order:
                    taken[cell.name][name].append(bench.added(name, cell))
        rows: list[Row] = [row for peer in options.peer for row in gateway_rows(taken, OURS, peer)]
        if not options.quick:
            rows.append(rss_row(*bench.rss(OURS), requests=RSS_REQUESTS))
    return Record(
        bench="gateway",
        rows=rows,
        quick=options.quick,
        notes=_notes(options, bench),
        details=_details(taken),
        peer_versions=versions,
    )


def _notes(options: argparse.Namespace, bench: Bench) -> list[str]:
    notes = [
        f"Ours with keys, limits, budget and ledger; one core each; closed loop, "
        f"{options.rounds} round(s) of {bench.seconds:g} s; added: beside direct runs just before "
        "and after.",
    ]
    if bench.others > NOISY_SHARE:
        notes.append(f"NOISY: others took up to {100 * bench.others:.0f} % of the machine.")
    return notes


def _details(taken: dict[str, dict[str, list[Added]]]) -> dict[str, Any]:
    return {
        cell: {name: [one.to_dict() for one in of] for name, of in by_name.items()}
        for cell, by_name in taken.items()
    }


def _peers(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}: {', '.join(PEERS)}")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--peer", type=_peers, default=list(PEERS), metavar=",".join(PEERS))
    parser.add_argument("--concurrency", type=counts, default=[1, 16, 64], metavar="N,...")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    return options


def main() -> int:
    """Runs the comparison; 1 when a target is missed, 2 when it could not be measured."""
    options = _options()
    signal.signal(signal.SIGTERM, leave)
    BENCH_DIR.mkdir(exist_ok=True)
    try:
        record = measure(options)
    except RidgelineError as error:
        print(f"gateway bench: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=options.json, ours=OURS)


if __name__ == "__main__":
    sys.exit(main())
