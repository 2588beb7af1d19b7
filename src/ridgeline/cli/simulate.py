"""`ridgeline simulate serving`: what would happen to a platform under a trace.

Exit status: 0; 1 where an SLO is missed or the run is unstable; 2 bad input.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ridgeline.serving.simulate.report import Slo
    from ridgeline.spec import Platform
    from ridgeline.workload import Trace


@click.group()
def simulate() -> None:
    """Say what would happen: the platform's own decisions, in virtual time."""


@simulate.command()
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), required=True,
              help="A trace file: docs/guide/traces.md has the formats.")  # fmt: skip
@click.option("--model", help="Which model is asked; the first where not given.")
@click.option("--speed", default=1.0, show_default=True, type=click.FloatRange(min=1e-6),
              help="The trace so many times as fast.")  # fmt: skip
@click.option("--requests", type=click.IntRange(min=1), help="Only so many, from the beginning.")
@click.option("--seed", default=0, show_default=True, type=int, help="Of all that is drawn.")
@click.option("--events", type=click.Path(dir_okay=False, path_type=Path),
              help="Write each event to this file, as JSON lines.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.pass_context
def serving(
    ctx: click.Context,
    spec: Path,
    trace: Path,
    model: str | None,
    speed: float,
    requests: int | None,
    seed: int,
    events: Path | None,
    as_json: bool,
) -> None:
    """Serve a trace with the platform of SPEC, in virtual time."""
    from ridgeline.spec import load
    from ridgeline.workload import read_trace

    platform = load(spec)
    recorded = read_trace(trace, speed=speed, limit=requests)
    began_s = time.perf_counter()
    told = run(platform, recorded, model, seed, events)
    told["wall_s"] = time.perf_counter() - began_s
    click.echo(json.dumps(told, indent=1) if as_json else "\n".join(lines(told)))
    missed = "slo" in told and told["slo"]["attainment"] < told["slo"]["wanted"]
    ctx.exit(1 if missed or not told["stable"] else 0)


def run(
    platform: "Platform", trace: "Trace", model: str | None, seed: int, events: Path | None
) -> dict[str, Any]:
    """One simulation, as plain values."""
    from ridgeline.errors import SpecError
    from ridgeline.platform.simulated import serving_of
    from ridgeline.serving.simulate.clients import OpenLoop
    from ridgeline.serving.simulate.log import Log
    from ridgeline.serving.simulate.report import by, report
    from ridgeline.serving.simulate.world import simulate as simulate_serving

    names = [one.name for one in platform.models]
    asked = model or names[0]
    if asked not in names:
        raise SpecError(
            f"{asked!r} is no model of the spec", where="--model", remedy=", ".join(names)
        )
    setup = serving_of(platform, seed=seed)
    clients = OpenLoop(trace.requests, asked, block_tokens=trace.block_tokens)
    if events is None:
        outcome = simulate_serving(setup, clients)
    else:
        with events.open("w", encoding="utf-8") as file:
            outcome = simulate_serving(setup, clients, Log(lambda line: _print(file, line)))
    slo = _slo(platform, asked)
    told = report(outcome, slo)
    tenants = by(outcome, "tenant", slo)
    if len(tenants) > 1:
        told["tenants"] = tenants
    return {"platform": platform.name, "model": asked, "trace": trace.name, "seed": seed, **told}


def _print(file: Any, line: str) -> None:
    file.write(f"{line}\n")


def _slo(platform: "Platform", model: str) -> "Slo | None":
    from ridgeline.serving.simulate.report import Slo

    slo = next(one for one in platform.models if one.name == model).slo
    return None if slo is None else Slo(slo.ttft, slo.tpot, slo.attainment)


def lines(told: dict[str, Any]) -> list[str]:
    """For people."""
    ends = ", ".join(f"{count:,} {end}" for end, count in told["ends"].items())
    per_s = told["requests"] / told["wall_s"] if told["wall_s"] else 0.0
    found = [
        f"{told['requests']:,} requests in {told['lasted_s']:,.1f} s: {ends}",
        f"  {'':12}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}",
    ]
    for name, words in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "whole")):
        cells = "".join(f"{_seconds(value):>10}" for value in told[name].values())
        found.append(f"  {words:12}{cells}")
    found.append(
        f"{told['requests_per_s']:.2f} requests/s, {told['output_tokens_per_s']:,.0f} tokens/s; "
        f"{told['prefix_hit_rate']:.1%} of prompts' tokens were cached"
    )
    if "slo" in told:
        slo = told["slo"]
        found.append(
            f"SLO (TTFT {_seconds(slo['ttft_s'])}, TPOT {_seconds(slo['tpot_s'])}): "
            f"{slo['attainment']:.1%} of requests, {slo['wanted']:.1%} wanted; "
            f"goodput {slo['goodput_per_s']:.2f}/s"
        )
    if not told["stable"]:
        flying, wait = told["in_flight"], told["wait_s"]
        found.append(
            "UNSTABLE: its backlog grows while requests come, from "
            f"{flying['third_quarter']:.0f} in flight in the third quarter of the arrivals to "
            f"{flying['last_quarter']:.0f} in the last, first tokens from "
            f"{_seconds(wait['third_quarter'])} to {_seconds(wait['last_quarter'])}. The times "
            "above say how long the run was, not how good the platform is."
        )
    busy = [one["busy"] for one in told["replicas"]]
    found.append(
        f"{len(busy)} replicas, {told['replica_hours']:.2f} replica-hours, ${told['usd']:.2f}; "
        f"busy {min(busy):.0%} to {max(busy):.0%}"
    )
    found.append(
        f"{told['events']:,} events, digest {told['digest']}; {per_s:,.0f} requests/s simulated"
    )
    return found


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
