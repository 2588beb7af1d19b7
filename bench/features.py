"""What sampling, penalties, guided JSON, log-probabilities and the cache's switches cost.

    python bench/features.py [--quick] [--json] [--dtype bf16] [--rounds 3] [--concurrency 16,32]

Law of this file: a request's switch is measured beside the plain greedy one in the same server,
one right after the other; a server's switch beside the server without it. Every request has the
same number of tokens, in and out, whatever it asks for (the schema cannot be satisfied earlier), so
that tokens/s compare. Prompts are new each time, since the server caches prefixes.
"""

import argparse
import asyncio
import itertools
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from client import Prompts
from engine import counts, leave
from floor import SMOLLM2_135M
from hf_model import BENCH_DIR, hf_folder
from launches import ridgeline_launch
from ridgeline.errors import RidgelineError
from rounds import (
    OUTPUT_TOKENS,
    WARM_PROMPT_TOKENS,
    Asked,
    Cell,
    Pair,
    Run,
    in_turn,
    noise_notes,
    pair_details,
    refuse_noise,
    run_alone,
    start,
)
from rows import Record, Row, add_options, compared, report, say
from servers import Launch, Server, warm_up

PROMPT_TOKENS = 128
PLAIN_SAMPLING_LEAST = 0.95
SMALL_CACHE_SHARE = 0.6  # of what all requests side by side need: some must be preempted

DEFAULT, UNCACHED, SMALL = "default", "no prefix caching", "small cache"  # servers

# Two hundred items do not fit into the output, so nothing ends early.
SCHEMA = {
    "type": "array",
    "minItems": 200,
    "maxItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 4, "maxLength": 24},
            "count": {"type": "integer", "minimum": 0, "maximum": 999},
            "kind": {"enum": ["node", "replica", "request", "block"]},
        },
        "required": ["name", "count", "kind"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class Feature:
    """A switch of a request: its fields, and the least ratio to the plain greedy request."""

    name: str
    asks: Mapping[str, Any] = field(default_factory=dict)
    target: float | None = None


GREEDY = Feature("greedy")
FEATURES = (
    Feature("plain sampling", {"temperature": 1.0}, PLAIN_SAMPLING_LEAST),
    Feature("top-p 0.9, top-k 50", {"temperature": 1.0, "top_p": 0.9, "top_k": 50}),
    Feature(
        "penalties",
        {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    ),
    Feature(
        "guided JSON",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "items", "schema": SCHEMA},
            }
        },
    ),
    Feature("logprobs 5", {"logprobs": 5}),
)


def small_cache_bytes(cell: Cell) -> int:
    """A key-value cache too small for all requests of a cell at their full length."""
    tokens = cell.concurrency * (cell.prompt_tokens + OUTPUT_TOKENS)
    return int(SMALL_CACHE_SHARE * tokens * SMOLLM2_135M.kv_bytes_per_token)


def count_of(metric: str, said: str) -> int:
    """A counter's sum over its labels, from a metrics page; 0 where it is not there."""
    pattern = rf"^{re.escape(metric)}(?:\{{[^}}]*\}})? (\S+)$"
    return round(sum(float(value) for value in re.findall(pattern, said, re.MULTILINE)))


async def preemptions(server: Server) -> int:
    """How many times the server has taken a request's cache away."""
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.get(f"{server.url}/metrics") as answer,
    ):
        return count_of("vllm:num_preemptions_total", await answer.text())


@dataclass(frozen=True, slots=True)
class Case:
    """One row: a cell, a server and what its requests ask for; compared with `plain`'s."""

    cell: Cell
    server: str
    feature: Feature

    @property
    def name(self) -> str:
        """What the row is called: the server's switch, or else the request's."""
        switched = self.feature.name if self.server == DEFAULT else self.server
        return f"c{self.cell.concurrency} {switched}"


@dataclass(slots=True)
class Bench:
    """The servers of one run, and where its prompts come from."""

    prompts: Prompts
    servers: dict[str, Server]
    seeds: Iterator[int]

    def run(self, case: Case) -> Run:
        """One run of a case, on prompts that nobody has seen."""
        cell, server = case.cell, self.servers[case.server]
        texts = self.prompts.draw(cell.prompt_tokens, cell.requests, next(self.seeds))
        idle = [other for other in self.servers.values() if other is not server]
        return run_alone(Asked(server, case.feature.asks, case.name), idle, cell, texts)

    def run_pair(self, case: Case, round_: int) -> Pair:
        """A case and the plain one; who goes first changes with the round."""
        plain = Case(case.cell, DEFAULT, GREEDY)
        both = in_turn(lambda: self.run(case), lambda: self.run(plain), round_)
        return Pair(case.cell, *both, case.name)


def case_row(case: Case, pairs: Sequence[Pair]) -> Row:
    """One case's row from its rounds."""
    own = [pair for pair in pairs if pair.beside == case.name]
    rates = [[run.load.tokens_per_s for run in side]
             for side in ([pair.ours for pair in own], [pair.peer for pair in own])]  # fmt: skip
    return compared(case.name, "tokens/s", *rates, target=case.feature.target)


def warm(server: Server, features: Sequence[Feature], prompts: Prompts) -> None:
    """Each feature once, so that nobody waits for a vocabulary or a grammar to be read."""
    server.resume()
    for feature in features:
        texts = prompts.draw(WARM_PROMPT_TOKENS, 2, seed=11)
        asyncio.run(warm_up(server, texts, WARM_PROMPT_TOKENS, feature.asks))
    server.pause()


def cases(quick: bool, cells: Sequence[Cell]) -> list[Case]:
    """Every row, those of the request's switches first."""
    found = [Case(cell, DEFAULT, feature) for cell in cells for feature in FEATURES]
    if not quick:
        found += [Case(cell, UNCACHED, GREEDY) for cell in cells]
        found.append(Case(largest(cells), SMALL, GREEDY))
    return found


def largest(cells: Sequence[Cell]) -> Cell:
    """The cell with the most requests side by side."""
    return max(cells, key=lambda cell: cell.concurrency)


def launches(quick: bool, dtype: str, cells: Sequence[Cell]) -> dict[str, Launch]:
    """The servers by what is switched in them."""
    found = {DEFAULT: ridgeline_launch("--dtype", dtype, name=DEFAULT)}
    if not quick:
        cache = str(small_cache_bytes(largest(cells)))
        found[UNCACHED] = ridgeline_launch("--dtype", dtype, "--no-prefix-caching", name="uncached")
        found[SMALL] = ridgeline_launch("--dtype", dtype, "--kv-cache", cache, name="small")
    return found


def measure_all(options: argparse.Namespace) -> Record:
    """All switches, from the first start to the record."""
    cells = [Cell(PROMPT_TOKENS, lanes) for lanes in options.concurrency]
    prompts = Prompts(hf_folder() / "tokenizer.json")
    refuse_noise(options.allow_noise, where="bench/features.py")
    wanted = cases(options.quick, cells)
    pairs: list[Pair] = []
    with ExitStack() as stack:
        servers = {
            name: start(launch, "features", prompts, stack)[0]
            for name, launch in launches(options.quick, options.dtype, cells).items()
        }
        warm(servers[DEFAULT], FEATURES, prompts)
        bench = Bench(prompts, servers, itertools.count(1000))
        for round_ in range(options.rounds):
            say(f"round {round_ + 1} of {options.rounds}")
            pairs += [bench.run_pair(case, round_) for case in wanted]
        notes = [] if options.quick else [preemption_note(servers[SMALL])]
    return Record(
        bench="features",
        rows=[case_row(case, pairs) for case in wanted],
        quick=options.quick,
        notes=[
            *noise_notes(pairs),
            *notes,
            f"SmolLM2-135M {options.dtype}, {PROMPT_TOKENS} + {OUTPUT_TOKENS} tokens, closed loop, "
            f"{options.rounds} round(s); beside plain greedy requests to the default server.",
        ],
        details={"pairs": [pair_details(pair) for pair in pairs]},
    )


def preemption_note(server: Server) -> str:
    """How often the small cache made the server preempt: the row is empty talk at 0."""
    server.resume()
    count = asyncio.run(preemptions(server))
    server.pause()
    return f"The small cache holds {SMALL_CACHE_SHARE:.0%} of the need: {count} preemptions."


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--dtype", choices=["bf16", "int8", "fp32"], default="bf16")
    parser.add_argument("--concurrency", type=counts, metavar="N,...")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--allow-noise", action="store_true", help="measure on a busy machine")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.concurrency = options.concurrency or ([16] if options.quick else [16, 32])
    return options


def main() -> int:
    """Measures every switch; 1 when a target is missed, 2 when it could not be measured."""
    options = _options()
    signal.signal(signal.SIGTERM, leave)
    BENCH_DIR.mkdir(exist_ok=True)
    try:
        record = measure_all(options)
    except RidgelineError as error:
        print(f"features bench: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=options.json, ours="with", peer="greedy")


if __name__ == "__main__":
    sys.exit(main())
