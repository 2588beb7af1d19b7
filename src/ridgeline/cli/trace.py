"""`ridgeline trace`: what a recorded trace is like, before it is asked of anything.

Exit status: 0; 2 bad input.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ridgeline.workload.statistics import Rate, Reuse, Spread, Statistics

_BARS = "▁▂▃▄▅▆▇█"
_MOST_NAMES = 8


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--requests", type=click.IntRange(min=1), help="Only so many, the first of it.")
@click.option(
    "--context", type=click.IntRange(min=1), help="Count what is longer than so many tokens."
)
@click.option("--seed", default=0, show_default=True, type=int, help="Of what ServeGen's draw.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def trace(
    file: Path, requests: int | None, context: int | None, seed: int, *, as_json: bool
) -> None:
    """Say what the trace in FILE is like (`example`: the one that comes with Ridgeline)."""
    from ridgeline.workload import read_trace
    from ridgeline.workload.statistics import statistics, too_long

    recorded = read_trace(file, limit=requests, seed=seed, where="FILE")
    told = statistics(recorded)
    longer = None if context is None else too_long(recorded, context)
    if as_json:
        more = {} if longer is None else {"context_tokens": context, "too_long": longer}
        click.echo(json.dumps({**told.to_dict(), **more}, indent=1))
        return
    click.echo("\n".join(_lines(told)))
    if longer is not None:
        click.echo(f"  too long   {longer:,} are over {context:,} tokens with their answer")


def _lines(told: "Statistics") -> list[str]:
    times = f" in {told.duration_s:,.1f} s" if told.rate else ", without times"
    lines = [f"{told.name}: {told.format}, {told.requests:,} requests{times}"]
    if told.rate:
        lines += _rate(told.rate, told.duration_s)
    lines.append(f"{'':11}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}")
    lines += [_spread("prompt", told.prompt_tokens), _spread("output", told.output_tokens)]
    if told.turns:
        lines.append(_spread("turns", told.turns) + f"   of {told.sessions:,} sessions")
    if told.reuse:
        lines += _reuse(told.reuse)
    for kind, names in (("tenants", told.tenants), ("models", told.models)):
        if names:
            lines.append(f"  {kind:<11}{_names(names)}")
    return [*lines, *(f"  note: {note}" for note in told.notes)]


def _rate(rate: "Rate", lasts_s: float) -> list[str]:
    pieces = rate.pieces_per_s
    most = max(pieces)
    bars = "".join(_BARS[min(7, int(8 * one / most))] for one in pieces)
    length_s = lasts_s / len(pieces)
    return [
        f"  rate       {rate.per_s:.3g}/s on average, {rate.worst_second:,} in the worst second",
        f"  over time  {bars}  {min(pieces):.3g} to {most:.3g}/s, {length_s:,.0f} s each",
        f"  bursts     CV of gaps {rate.cv:.2f}, dispersion of counts {rate.dispersion:.1f} "
        "(Poisson: 1 and 1)",
    ]


def _spread(name: str, told: "Spread") -> str:
    numbers = (told.p50, told.p90, told.p99, told.most)
    return f"  {name:<9}{told.mean:>10,.1f}" + "".join(f"{one:>10,.0f}" for one in numbers)


def _reuse(reuse: "Reuse") -> list[str]:
    tokens = reuse.block_tokens
    lines = [
        f"  prefixes   {reuse.unlimited:.1%} of prompts' tokens came before "
        f"({reuse.distinct_blocks:,} blocks of {tokens} tokens)"
    ]
    lines += [
        f"{'':13}{share:.1%} with room for {blocks:,} blocks ({blocks * tokens:,} tokens)"
        for blocks, share in reuse.by_blocks
    ]
    return lines


def _names(names: dict[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in list(names.items())[:_MOST_NAMES]]
    left = len(names) - len(shown)
    return ", ".join(shown) + (f", and {left} more" if left else "")
