"""The routing rules in virtual time, beside least load: what each saves and what it costs.

    python bench/routing_rules.py [--quick] [--json]

Law of this file: nothing is served. The rules are the gateway's own and the formulas of others,
replicas are the engine's scheduler with the step-time model of Llama 3.1 8B on an H100
(`serving.simulate.routing`), and all is seeded, so the numbers are the same on every machine.
`bench/routing.py` is the same over HTTP, beside the others' own programs.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.policy.route import RULES
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.routing import max_over_mean, prefilled_tokens, routed
from ridgeline.serving.simulate.talks import Talk, chats, heavy_tail, of_trace
from ridgeline.workload import read_trace
from rows import Better, Record, Row, add_options, bounded, compared, measured, report, say

BESIDE = "least-load"
REPLICAS = 8
TRACES = Path(__file__).parents[2] / "shared" / "data" / "traces"


@dataclass(frozen=True, slots=True)
class Load:
    """Talks, and what their replicas are set to."""

    name: str
    talks: Sequence[Talk]
    block_tokens: int = 16
    max_batched_tokens: int = 2048


def loads(*, quick: bool) -> list[Load]:
    """Chats, heavy tails, decoding alone, and two recorded traces where they are there."""
    behind = {"system_tokens": 1000, "think_s": 1.0}
    alone = {"turns": 1, "said_tokens": 60, "answer_tokens": 400}
    found = [
        Load("ten-turn chats", chats(160, per_s=4.0)),
        Load("chats, one system prompt", chats(160, per_s=8.0, **behind)),
        Load("chats, full", chats(300, per_s=40.0, said_tokens=400, think_s=1.0)),
        Load("heavy tail", heavy_tail(1500, per_s=60.0)),
        Load("decoding alone", chats(1500, per_s=50.0, system_tokens=512, **alone)),
    ]
    for name in () if quick else ("mooncake_synthetic", "mooncake_conversation"):
        path = TRACES / f"{name}.jsonl.gz"
        if path.exists():
            trace = read_trace(path)
            talks = of_trace(islice(trace.requests, 2500), speed=2.0)
            found.append(Load(f"{name} x2", talks, trace.block_tokens, 8192))
    return found


def measure(*, quick: bool) -> Record:
    """Every rule on every load."""
    runs_on = machine("llama-3.1-8b", "h100-sxm")
    rows: list[Row] = []
    for load in loads(quick=quick):
        done: dict[str, Outcome] = {}
        for rule in RULES:
            done[rule] = routed(
                load.talks,
                rule,
                runs_on,
                replicas=REPLICAS,
                block_tokens=load.block_tokens,
                max_batched_tokens=load.max_batched_tokens,
            )
            say(f"  {load.name:26} {rule}")
        for rule in RULES:
            rows += _rows(f"{load.name}, {rule}", done[rule], done[BESIDE], is_same=rule == BESIDE)
    note = f"{REPLICAS} replicas in virtual time: Llama 3.1 8B on an H100 each, beside {BESIDE}."
    return Record("routing-rules", rows, quick, notes=[note])


def _rows(case: str, ours: Outcome, other: Outcome, *, is_same: bool) -> list[Row]:
    even = measured(f"{case}: max/mean load", "x", max_over_mean(ours), better=Better.LESS)
    even = bounded(even, 1.3) if "prefix-sticky" in case else even
    if is_same:
        return [
            even,
            measured(f"{case}: prefilled", "tokens", prefilled_tokens(ours), better=Better.LESS),
            measured(f"{case}: TTFT p99", "ms", _ttft_ms(ours), better=Better.LESS),
            measured(f"{case}: total p99", "s", _total_s(ours), better=Better.LESS),
        ]
    pairs = (
        ("prefilled", "tokens", prefilled_tokens(ours), prefilled_tokens(other)),
        ("TTFT p99", "ms", _ttft_ms(ours), _ttft_ms(other)),
        ("total p99", "s", _total_s(ours), _total_s(other)),
    )
    return [even] + [
        compared(f"{case}: {what}", unit, [mine], [theirs], better=Better.LESS)
        for what, unit, mine, theirs in pairs
    ]


def _ttft_ms(outcome: Outcome) -> float:
    return 1e3 * percentile(outcome.ttft_s(), 0.99)


def _total_s(outcome: Outcome) -> float:
    return percentile(outcome.e2e_s(), 0.99)


def main() -> int:
    """Prints the table; 1 where the default rule's load is not even."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    options = parser.parse_args()
    record = measure(quick=options.quick)
    return report(record, as_json=options.json, ours="rule", peer=BESIDE)


if __name__ == "__main__":
    sys.exit(main())
