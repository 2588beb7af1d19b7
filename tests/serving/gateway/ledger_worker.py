"""A gateway worker's ledger in a process of its own, for tests that need several or kill one.

`python ledger_worker.py race URL NAME`: says "ready" and waits for a line; then 64 clients take
requests as fast as they are granted, until nothing is any more; prints how many were.
`... hold URL NAME`: reserves nine requests, streams a little of eight, says "held" and waits to be
killed.
"""

import asyncio
import sys
from decimal import Decimal

from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.gateway.ledger_rows import Actual, Ask
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.price import Price
from ridgeline.store.database import open_store

PRICE = Price(Decimal(1), Decimal(1), Decimal(1))
LIMITS = Limits(input_tokens_per_minute=250_000, output_tokens_per_minute=100_000)
CALLER = Caller("acme", "k1", tenant_limits=LIMITS)
CLIENTS = 64
MOST_INPUT, MOST_OUTPUT = 60, 50


async def race(ledger: Ledger, name: str) -> None:
    granted = 0
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def client(number: int) -> None:
        nonlocal granted
        for turn in range(10_000):
            request_id = f"req-{name}-{number}-{turn}"
            ask = Ask(request_id, CALLER, "m", "chat", MOST_INPUT, MOST_OUTPUT, PRICE)
            try:
                await ledger.reserve(ask)
            except ApiError as refusal:
                # Held tokens may come back, what was used does not within this test.
                if int(refusal.headers["Retry-After"]) > 1:
                    return
                continue
            granted += 1
            used = MOST_OUTPUT - turn % 7
            await ledger.settle(request_id, Actual("r", 200, MOST_INPUT, 0, used, "usage"))

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    print(granted, flush=True)


async def hold(ledger: Ledger) -> None:
    for number in range(8):
        request_id = f"req-held-{number}"
        await ledger.reserve(Ask(request_id, CALLER, "m", "chat", 60, 50, PRICE))
        ledger.dispatched(request_id, "r", request_id)
        ledger.streamed(request_id, number)
    ledger.tick()
    # Whatever was submitted before is committed with this, or before it.
    await ledger.reserve(Ask("req-late", CALLER, "m", "chat", 60, 50, PRICE))
    print("held", flush=True)
    await asyncio.Event().wait()


async def main(act: str, url: str, name: str) -> None:
    engine = open_store(url)
    ledger = Ledger(engine, name)
    await ledger.open()
    if act == "hold":
        await hold(ledger)
    await race(ledger, name)
    await ledger.close()
    engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
