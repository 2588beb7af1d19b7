"""`ridgeline calibrate --from-live URL`: profile a running engine into a file of step times."""

import datetime
import json
import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ridgeline import event_loop
from ridgeline.cli.extras import needs
from ridgeline.errors import SpecError
from ridgeline.serving.plan.step_file import StepTimes, write
from ridgeline.serving.plan.step_fit import Estimate, Fitted, fit_table
from ridgeline.show import number

if TYPE_CHECKING:
    from ridgeline.serving.bench.step_profile import Profile

_BLOCK_TOKENS = 16
#: A median error above this says that somebody else was busy meanwhile.
_BELIEVABLE = 0.1


def from_live(urls: Sequence[str], file: Path | None, given: dict[str, Any]) -> None:
    """Profile, fit, show, and write where asked."""
    needs("aiohttp", "bench")
    from ridgeline.serving.bench.step_profile import POINTS, Extent, profile

    extent = Extent(given["sequences"], given["context"], given["step_tokens"])
    seen = event_loop.run(
        profile(
            urls, extent, given["seconds"], seed=secrets.randbits(32), through=given["through"],
            model=given["model"], api_key=given["api_key"],
        )
    )  # fmt: skip
    fitted = fit_table(seen.seen, POINTS)
    times = step_times_of(fitted, seen, urls, given["kv_tokens"])
    if file is not None:
        write(file, times)
    error = float(np.median(fitted.errors))
    if error > _BELIEVABLE:
        told = f"half of what was measured is {error:.0%} off the fit"
        remedy = "nobody else on the machine, and more --seconds"
        click.echo(f"ridgeline: warning: {told}\n  try: {remedy}", err=True)
    if given["as_json"]:
        click.echo(json.dumps(asdict(times), indent=1))
        return
    _show(times, file)


def step_times_of(
    fitted: Fitted, seen: "Profile", urls: Sequence[str], kv_tokens: int | None
) -> StepTimes:
    """What the file says. Raises SpecError where nobody says how much the cache holds."""
    tokens = kv_tokens or seen.kv_tokens
    if not tokens:
        raise SpecError(
            f"{urls[0]} does not tell how many tokens its cache holds",
            where="--kv-tokens",
            remedy="--kv-tokens N, as the engine's log says at its start",
        )
    arrive, deliver = ways(fitted.travel_s, seen.ping_s, seen.passed_s)
    error = float(np.median(fitted.errors))
    source = {
        "command": shlex.join(["ridgeline", *sys.argv[1:]]),
        "urls": list(urls),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "measurements": len(fitted.errors),
        "median_error": float(f"{error:.3g}"),
        "took_s": round(seen.took_s, 1),
    }
    return StepTimes(
        seen.model,
        tokens,
        seen.block_tokens or _BLOCK_TOKENS,
        dict(zip(fitted.rows, fitted.curve, strict=True)),
        fitted.sequence_s,
        fitted.cached_s_per_token,
        fitted.attended_s_per_pair,
        arrive,
        deliver,
        source,
    )


def ways(both: Estimate, ping_s: float, passed_s: float) -> tuple[Estimate, Estimate]:
    """A request's way and a token's, of which only the sum is seen in a first token.

    A token's is half of what the shortest question takes; the rest is the request's, which is read
    and tokenised, and passed on by a gateway in `passed_s`.
    """
    back_s = min(ping_s / 2, both.low)
    there_s = passed_s - back_s
    arrive = Estimate(*(value + there_s for value in (both.value, both.low, both.high)))
    return arrive, Estimate(back_s, 0.0, min(ping_s, both.high))


def _show(times: StepTimes, file: Path | None) -> None:
    source = times.source
    click.echo(
        f"{times.model}: {source['measurements']} measurements in {source['took_s']} s, "
        f"median error {100 * source['median_error']:.1f} %; "
        f"a cache of {times.kv_tokens:,} tokens"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("", "ms", "95 % within"):
        table.add_column(column, justify="left" if not column else "right")
    shown = [(f"a step of {rows}", 1e3, one) for rows, one in times.curve.items()]
    shown += [
        ("+ each sequence", 1e3, times.sequence_s),
        ("+ 1,000 cached tokens", 1e6, times.cached_s_per_token),
        ("+ 1,000,000 attended", 1e9, times.attended_s_per_pair),
        ("a request's way", 1e3, times.arrive_s),
        ("a token's way", 1e3, times.deliver_s),
    ]
    for name, scale, one in shown:
        value, low, high = (number(scale * each, 3) for each in (one.value, one.low, one.high))
        table.add_row(name, value, f"{low} ... {high}")
    Console().print(table, highlight=False)
    if file is None:
        click.echo("--file step-times.yaml keeps them")
    else:
        click.echo(f"written into {file}; ridgeline simulate serving SPEC --step-times {file}")
