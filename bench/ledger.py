"""What reserve and settle cost a request, and what sharing commits is worth.

Law of this file: every pair is a whole request's part of the ledger (reserve, dispatch, a decision,
settle) with all limits on tenant and key. The reference is the same ledger with a transaction for
each operation, in the same rounds. Targets: one client's pair within 2 ms; at most a third of a
millisecond of a core for each of 64 clients' pairs, which is 3,000 pairs/s; sharing is worth 2x.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
import uuid
from decimal import Decimal
from pathlib import Path
from statistics import median

from ridgeline.serving.gateway import ledger_writer
from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.gateway.ledger_rows import Actual, Ask
from ridgeline.serving.policy.limits import Budget, Limits
from ridgeline.serving.policy.price import Price
from ridgeline.store.database import open_store
from rows import Better, Record, Row, add_options, bounded, compared, measured, report, say

CLIENTS = 64
PRICE = Price(Decimal("0.5"), Decimal("0.05"), Decimal("1.5"))
LIMITS = Limits(10**9, 10**12, 10**12, 10**6, Budget(Decimal(10**6), "month", "Europe/Berlin"))
CALLERS = [
    Caller(f"tenant-{number % 4}", f"key-{number}", tenant_limits=LIMITS, key_limits=LIMITS)
    for number in range(8)
]


class Times:
    """Seconds that each pair took in its halves, and all of them together."""

    def __init__(self) -> None:
        self.reserve_s: list[float] = []
        self.settle_s: list[float] = []
        self.pairs_per_s = 0.0
        self.cpu_s = 0.0


async def pair(ledger: Ledger, number: int, times: Times) -> None:
    """One request's part of the ledger."""
    request_id = f"req-{uuid.uuid4().hex}"
    caller = CALLERS[number % len(CALLERS)]
    began = time.perf_counter()
    await ledger.reserve(Ask(request_id, caller, "m", "chat", 1000, 200, PRICE))
    times.reserve_s.append(time.perf_counter() - began)
    ledger.dispatched(request_id, "r1", request_id)
    ledger.record_decision(request_id, caller.tenant, b"{}")
    began = time.perf_counter()
    await ledger.settle(request_id, Actual("r1", 200, 990, 100, 150, "usage"))
    times.settle_s.append(time.perf_counter() - began)


async def run(url: str, clients: int, pairs: int, *, shared: bool = True) -> Times:
    """So many clients, each with its next pair as soon as the last one ended."""
    ledger_writer._MOST_AT_ONCE = 512 if shared else 1
    engine = open_store(url)
    ledger = Ledger(engine, f"bench-{uuid.uuid4().hex}")
    await ledger.open()
    times, numbers = Times(), iter(range(pairs))

    async def client() -> None:
        for number in numbers:
            await pair(ledger, number, times)

    began, began_cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    times.pairs_per_s = pairs / (time.perf_counter() - began)
    times.cpu_s = (time.process_time() - began_cpu) / pairs
    await ledger.close()
    engine.dispose()
    return times


async def rows_of(url: str, rounds: int, pairs: int) -> list[Row]:
    """All cases, round by round."""
    alone, shared, single = [], [], []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        alone.append(await run(url, 1, pairs // 10))
        shared.append(await run(url, CLIENTS, pairs))
        single.append(await run(url, CLIENTS, pairs // 4, shared=False))
    one_s = [median(times.reserve_s) + median(times.settle_s) for times in alone]
    cpu_ms = median(times.cpu_s for times in shared) * 1e3
    return [
        bounded(_ms("c1: a pair, p50", median(one_s) * 1e3), 2.0),
        _ms("c1: reserve, p50", _p50_ms([times.reserve_s for times in alone])),
        _ms("c1: settle, p50", _p50_ms([times.settle_s for times in alone])),
        _ms("c64: reserve, p50", _p50_ms([times.reserve_s for times in shared])),
        _ms("c64: settle, p50", _p50_ms([times.settle_s for times in shared])),
        compared(
            "c64",
            "pairs/s",
            [times.pairs_per_s for times in shared],
            [times.pairs_per_s for times in single],
            target=2.0,
        ),
        bounded(_ms("c64: CPU for a pair", cpu_ms), 1 / 3),
    ]


def _ms(case: str, value: float) -> Row:
    return measured(case, "ms", value, better=Better.LESS)


def _p50_ms(rounds: list[list[float]]) -> float:
    return median(median(times) for times in rounds) * 1e3


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--database", help="a URL; a new SQLite file if not given")
    options = parser.parse_args()
    rounds, pairs = (1, 4_000) if options.quick else (5, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        url = options.database or f"sqlite:///{Path(folder) / 'ledger.db'}"
        rows = asyncio.run(rows_of(url, rounds, pairs))
    kind = url.partition(":")[0]
    load = f"{kind}; load average {os.getloadavg()[0]:.1f}"
    sys.exit(report(Record("ledger", rows, options.quick, [load]), as_json=options.json))


if __name__ == "__main__":
    main()
