"""How long a person waits: for the help, and for the first token of a second start.

    python bench/start.py [--rounds 5] [--quick] [--json]

The second start finds converted weights and compiled kernels in the cache; the first round here
fills both and is told apart. Targets: help in 0.3 s, a second start's first token in 5 s.
"""

import argparse
import asyncio
import subprocess
import sys
import time

import aiohttp

from platforms import MODEL, up
from rows import Better, Record, Row, add_options, compared, report

HELP_MOST_S = 0.3
SECOND_START_MOST_S = 5.0


def help_s() -> float:
    """`ridgeline --help` as a process."""
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ridgeline", "--help"], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began_s


async def first_token_s() -> float:
    """From starting `ridgeline up` to the first token of a client's stream."""
    began_s = time.perf_counter()
    body = {"model": MODEL, "prompt": "Hello", "max_tokens": 1, "stream": True}
    async with (
        up() as platform,
        aiohttp.ClientSession() as session,
        session.post(f"{platform.url}/v1/completions", json=body) as answer,
    ):
        answer.raise_for_status()
        await answer.content.readline()
        return time.perf_counter() - began_s


def rows_of(helps: list[float], first: float, starts: list[float]) -> list[Row]:
    """Each beside its limit."""
    less = Better.LESS
    limit = [HELP_MOST_S] * len(helps), [SECOND_START_MOST_S] * len(starts)
    return [
        compared("ridgeline --help", "s", helps, limit[0], target=1.0, better=less),
        Row("first token, cache as it was", "s", first, better=less),
        compared("first token, second start", "s", starts, limit[1], target=1.0, better=less),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    first = asyncio.run(first_token_s())
    starts = [asyncio.run(first_token_s()) for _ in range(rounds)]
    rows = rows_of([help_s() for _ in range(rounds)], first, starts)
    sys.exit(report(Record("start", rows, options.quick), as_json=options.json, peer="limit"))


if __name__ == "__main__":
    main()
