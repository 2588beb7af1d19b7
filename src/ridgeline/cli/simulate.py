"""`ridgeline simulate serving`: what would happen to a platform under a trace or a workload.

Exit status: 0; 1 where an SLO is missed or the run is unstable; 2 bad input.
"""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ridgeline.cli.simulate_text import lines
from ridgeline.errors import SpecError

if TYPE_CHECKING:
    from ridgeline.serving.simulate.report import Slo
    from ridgeline.serving.simulate.setup import Fault, Serving
    from ridgeline.serving.simulate.traffic import Traffic
    from ridgeline.spec import Platform

WORKLOAD_REQUESTS = 1_000
#: Near its limit a platform's backlog grows slowly: that takes longer to be seen.
SEARCHED_REQUESTS = 5_000


@click.group()
def simulate() -> None:
    """Say what would happen: the platform's own decisions, in virtual time."""


@simulate.command()
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A recorded trace; else a workload is drawn.",
)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=1e-6),
    help="The trace so many times as fast.",
)
@click.option("--rate", type=click.FloatRange(min=1e-6), help="Requests a second of a workload.")
@click.option(
    "--profile", help="How the rate changes: diurnal:PEAK, step:AT_S:TIMES, onoff:ON_S:OFF_S."
)
@click.option(
    "--arrivals",
    default="poisson",
    show_default=True,
    help="poisson, uniform, or gamma:CV for bursts.",
)
@click.option("--prompt", default="lognormal:1000:0.8", show_default=True, help="Its tokens.")
@click.option("--output", default="lognormal:200:0.8", show_default=True, help="Its tokens.")
@click.option(
    "--clients",
    type=click.IntRange(min=1),
    help="So many, each with one request in flight; times do not count.",
)
@click.option("--think-s", default=0.0, type=click.FloatRange(min=0), help="Between two of them.")
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    help="Only so many; 1,000 of a workload (5,000 to find a rate), all of a trace.",
)
@click.option(
    "--retries",
    default=0,
    type=click.IntRange(min=0),
    help="How often a client comes again that was refused.",
)
@click.option(
    "--patience-s", type=click.FloatRange(min=0), help="A client leaves that has no token by then."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="dies,at=30 or slow,at=30,for=60,factor=3 or silent,at=30,for=60; number=0.",
)
@click.option("--model", help="Which model is asked; the first where not given.")
@click.option("--seed", default=0, show_default=True, type=int, help="Of all that is drawn.")
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="So many runs, with intervals.",
)
@click.option(
    "--compare",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another spec under the same requests.",
)
@click.option("--find", type=click.Choice(["rate"]), help="The highest that keeps the SLO.")
@click.option(
    "--events",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each event to this file, as JSON lines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.pass_context
def serving(ctx: click.Context, /, spec: Path, as_json: bool, **given: Any) -> None:
    """Serve a trace or a workload with the platform of SPEC, in virtual time."""
    from ridgeline.spec import load

    platform = load(spec)
    traffic = _traffic(platform, given)
    slo = _slo(platform, traffic.model)
    setup = _setup(platform, given)
    seeds = range(given["seed"], given["seed"] + given["seeds"])
    began_s = time.perf_counter()
    if given["find"]:
        told = _found(setup, traffic, slo, seeds)
    elif given["compare"]:
        other = _setup(load(given["compare"]), given)
        told = _compared(setup, other, traffic, slo, seeds)
    elif len(seeds) > 1:
        told = _many(setup, traffic, slo, seeds)
    else:
        told = _one(setup, traffic, slo, given["events"])
    head = {"platform": platform.name, "model": traffic.model, "traffic": traffic.name}
    told = {**head, **told, "wall_s": time.perf_counter() - began_s}
    click.echo(json.dumps(told, indent=1) if as_json else "\n".join(lines(told)))
    ctx.exit(0 if told["holds"] else 1)


def _traffic(platform: "Platform", given: dict[str, Any]) -> "Traffic":
    """What is asked. SpecError where the options do not go together."""
    from ridgeline.serving.simulate.clients import Manners
    from ridgeline.serving.simulate.profile import parse_profile
    from ridgeline.serving.simulate.traffic import Loop, Seeded, Traffic
    from ridgeline.workload import parse_arrivals, parse_sizes, read_trace

    names = [one.name for one in platform.models]
    model = given["model"] or names[0]
    if model not in names:
        raise SpecError(
            f"{model!r} is no model of the spec", where="--model", remedy=", ".join(names)
        )
    clients, rate = given["clients"], given["rate"]
    loop = None if clients is None else Loop(clients, given["think_s"])
    manners = Manners(given["retries"], given["patience_s"])
    if given["trace"] is not None:
        if rate is not None or given["profile"]:
            raise SpecError("a trace has its own times", where="--rate", remedy="--speed")
        trace = read_trace(given["trace"], speed=given["speed"], limit=given["requests"])
        if loop is None and not trace.timed:
            raise SpecError(
                f"{trace.name} has no times", where="--trace", remedy="--clients N, a closed loop"
            )
        return Traffic(trace, model, loop, manners)
    if given["profile"] and rate is None:
        raise SpecError("needs a rate", where="--profile", remedy="--rate")
    if (rate is None) == (loop is None):
        raise SpecError("what is asked?", where="simulate", remedy="--trace, --rate or --clients")
    source = Seeded(
        parse_arrivals(given["arrivals"]),
        parse_sizes(given["prompt"], where="--prompt"),
        parse_sizes(given["output"], where="--output"),
        rate or 0.0,
        given["requests"] or (SEARCHED_REQUESTS if given["find"] else WORKLOAD_REQUESTS),
        parse_profile(given["profile"]) if given["profile"] else None,
    )
    return Traffic(source, model, loop, manners)


def _setup(platform: "Platform", given: dict[str, Any]) -> "Serving":
    from ridgeline.platform.simulated import serving_of

    first = platform.models[0].name
    faults = tuple(fault(text, given["model"] or first) for text in given["faults"])
    return replace(serving_of(platform, seed=given["seed"]), faults=faults)


def fault(text: str, model: str) -> "Fault":
    """One of `--fault`: its kind, then KEY=VALUE; SpecError."""
    from ridgeline.serving.simulate.setup import Fault, Trouble

    kind, *parts = text.split(",")
    values = {"at": 0.0, "for": 0.0, "factor": 1.0, "number": 0.0}
    remedy = "dies,at=30 or slow,at=30,for=60,factor=3 or silent,at=30,for=60; number=0"
    try:
        trouble = Trouble(kind)
        for part in parts:
            key, _, value = part.partition("=")
            if key not in values or not 0 <= float(value) < float("inf"):
                raise ValueError(part)
            values[key] = float(value)
    except ValueError as error:
        raise SpecError(f"{text!r} is no fault", where="--fault", remedy=remedy) from error
    if (trouble is Trouble.SLOW) != (values["factor"] != 1.0) or not values["factor"]:
        raise SpecError(f"{text!r}: a factor is of a slow one", where="--fault", remedy=remedy)
    number = int(values["number"])
    return Fault(values["at"], trouble, model, number, values["for"], values["factor"])


def _slo(platform: "Platform", model: str) -> "Slo | None":
    from ridgeline.serving.simulate.report import Slo

    slo = next(one for one in platform.models if one.name == model).slo
    return None if slo is None else Slo(slo.ttft, slo.tpot, slo.attainment)


def _one(
    setup: "Serving", traffic: "Traffic", slo: "Slo | None", events: Path | None
) -> dict[str, Any]:
    """One run."""
    from ridgeline.serving.simulate.log import Log
    from ridgeline.serving.simulate.report import by, report
    from ridgeline.serving.simulate.world import simulate as simulate_serving

    clients = traffic.clients(setup.seed)
    if events is None:
        outcome = simulate_serving(setup, clients)
    else:
        with events.open("w", encoding="utf-8") as file:
            outcome = simulate_serving(setup, clients, Log(lambda line: _print(file, line)))
    told = report(outcome, slo)
    tenants = by(outcome, "tenant", slo)
    if len(tenants) > 1:
        told["tenants"] = tenants
    kept = slo is None or told["slo"]["attainment"] >= slo.attainment
    return {"seed": setup.seed, **told, "holds": bool(kept and told["stable"])}


def _many(setup: "Serving", traffic: "Traffic", slo: "Slo | None", seeds: range) -> dict[str, Any]:
    """One run for each seed, and what they say together."""
    from ridgeline.serving.simulate.study import figures, interval, is_steady, runs

    outcomes = runs(setup, traffic, seeds)
    rows = [figures(one, slo) for one in outcomes]
    told = {name: interval([row[name] for row in rows]) for name in rows[0]}
    steady = sum(map(is_steady, outcomes))
    kept = slo is None or told["within the SLO (share)"].mean >= slo.attainment
    return {
        "seeds": list(seeds),
        "stable": steady,
        "figures": {name: asdict(one) for name, one in told.items()},
        "digests": [one.digest for one in outcomes],
        "holds": bool(kept and steady == len(seeds)),
    }


def _compared(
    first: "Serving", second: "Serving", traffic: "Traffic", slo: "Slo | None", seeds: range
) -> dict[str, Any]:
    """Two platforms under the same requests."""
    from ridgeline.serving.simulate.study import compare, is_steady, runs

    some = [runs(one, traffic, seeds) for one in (first, second)]
    rows = compare(some[0], some[1], slo)
    return {
        "seeds": list(seeds),
        "stable": [sum(map(is_steady, one)) for one in some],
        "compared": [{**asdict(one), "apart": one.difference.is_apart()} for one in rows],
        "holds": True,
    }


def _found(setup: "Serving", traffic: "Traffic", slo: "Slo | None", seeds: range) -> dict[str, Any]:
    """The highest rate that keeps the SLO."""
    from ridgeline.serving.simulate.study import find_rate

    if slo is None:
        raise SpecError(
            "is missing", where=f"models {traffic.model}.slo", remedy="slo: {ttft: 1s, tpot: 50ms}"
        )
    try:
        found = find_rate(setup, traffic, slo, seeds)
    except ValueError as error:
        raise SpecError(
            str(error), where="--find rate", remedy="another workload or SLO"
        ) from error
    return {"seeds": list(seeds), "found": asdict(found), "holds": True}


def _print(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")
