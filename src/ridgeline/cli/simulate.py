"""`ridgeline simulate serving`: what would happen to a platform under a trace or a workload.

Exit status: 0; 1 where an SLO is missed or the run is not in balance; 2 bad input; 130 after
Ctrl-C.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeline.cli.simulate_progress import Progress
from ridgeline.cli.simulate_runs import Answer, Question, compared, found, many_runs, one_run
from ridgeline.cli.simulate_text import lines
from ridgeline.cli.traffic_options import traffic_of
from ridgeline.cli.trouble_options import changed, fault
from ridgeline.errors import SpecError

if TYPE_CHECKING:
    from ridgeline.serving.simulate.setup import Serving
    from ridgeline.serving.simulate.traffic import Traffic
    from ridgeline.spec import Platform

INTERRUPTED = 130


@click.group()
def simulate() -> None:
    """Say what would happen: the platform's own decisions, in virtual time."""


@simulate.command()
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="A recorded trace, or `example`; else a workload is drawn.",
)
@click.option(
    "--workload",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of streams: several models and tenants at once.",
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
    help="dies,at=30 or slow,at=30,for=60,factor=3 or silent,at=30,for=60; number=0, kind=MODEL; "
    "lost,region=eu,at=30,for=60.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="CHANGE",
    help="rollout,to=NEW.yaml,at=60 or rolling,to=NEW.yaml,at=60: the next version.",
)
@click.option("--model", help="Which model is asked; the first where not given.")
@click.option("--tenants", help="Who asks, with shares: search:0.7,night:0.3.")
@click.option(
    "--step-times",
    multiple=True,
    metavar="[MODEL=]FILE",
    help="Step times of a running engine, as `calibrate --from-live` wrote them.",
)
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
    multiple=True,
    metavar="SPEC | KEY=a,b",
    help="Another spec under the same requests, or this one with each of these values of a key.",
)
@click.option(
    "--find",
    type=click.Choice(["rate", "replicas"]),
    help="The highest rate, or the fewest replicas, that keep the SLO.",
)
@click.option(
    "--events",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each event to this file, as JSON lines.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with pictures to this file; it stands alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.pass_context
def serving(ctx: click.Context, /, spec: Path, as_json: bool, **given: Any) -> None:
    """Serve a trace or a workload with the platform of SPEC, in virtual time."""
    from ridgeline.cli.simulate_page import write_page
    from ridgeline.spec import load

    _check(given)
    platform = load(spec)
    traffic = traffic_of(platform, given)
    began_s = time.perf_counter()
    progress = Progress(_count(traffic))
    try:
        with progress:
            answer = _answer(spec, platform, traffic, given, progress)
    except KeyboardInterrupt:
        at = f"after {progress.ended:,} requests, at {progress.virtual_s:,.0f} s of virtual time"
        click.echo(f"stopped {at}; of a part of a run nothing is told", err=True)
        ctx.exit(INTERRUPTED)
    head = {"platform": platform.name, "model": ", ".join(traffic.models), "traffic": traffic.name}
    told = {**head, **answer.told, "wall_s": time.perf_counter() - began_s}
    if given["html"] is not None:
        write_page(given["html"], told, answer.drawn, lines(told))
    click.echo(json.dumps(told, indent=1) if as_json else "\n".join(lines(told)))
    ctx.exit(0 if told["holds"] else 1)


def _answer(
    spec: Path, platform: "Platform", traffic: "Traffic", given: dict[str, Any], progress: Progress
) -> Answer:
    """Whatever is asked for."""
    seeds = range(given["seed"], given["seed"] + given["seeds"])

    def question(of: "Platform") -> Question:
        return Question(of, _setup(of, given), traffic, seeds, progress.tick)

    if given["find"]:
        return found(question(platform), given["find"])
    if given["compare"]:
        named = _others(spec, platform, traffic.model, given["compare"])
        return compared(list(named), [question(one) for one in named.values()])
    if len(seeds) > 1:
        return many_runs(question(platform))
    return one_run(question(platform), given["events"])


def _others(
    spec: Path, platform: "Platform", model: str, compare: tuple[str, ...]
) -> "dict[str, Platform]":
    """What is compared, by name: values of one key, or this spec and others."""
    from ridgeline.platform.variants import variants
    from ridgeline.spec import load

    keys = [one for one in compare if "=" in one and not Path(one).exists()]
    if keys and len(compare) > 1:
        raise SpecError(
            "one key at a time", where="--compare", remedy=f"{keys[0]}, or specs of your own"
        )
    if keys:
        return {one.name: one.platform for one in variants(spec, keys[0], model)}
    paths = [spec, *map(Path, compare)]
    short = [path.name for path in paths]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise SpecError("a spec beside itself", where="--compare", remedy="another one")
    return dict(zip(names, [platform, *(load(path) for path in paths[1:])], strict=True))


def _check(given: dict[str, Any]) -> None:
    """Options that would mean nothing together; SpecError."""
    if given["find"] and given["compare"]:
        raise SpecError("one question at a time", where="--find", remedy="without --compare")
    if given["html"] is not None and given["find"]:
        raise SpecError("a search has no picture", where="--html", remedy="a run at what is found")
    if given["html"] is not None and not given["html"].parent.is_dir():
        raise SpecError(
            f"the folder {given['html'].parent} does not exist",
            where="--html",
            remedy="one that does",
        )
    if given["events"] is not None and (given["find"] or given["compare"] or given["seeds"] > 1):
        raise SpecError("events are of one run", where="--events", remedy="one seed, one platform")


def _count(traffic: "Traffic") -> int:
    """How many requests a run has; 0 where that is open."""
    source = traffic.source
    return getattr(source, "count", 0) or len(getattr(source, "requests", ()))


def _setup(platform: "Platform", given: dict[str, Any]) -> "Serving":
    from ridgeline.platform.simulated import serving_of
    from ridgeline.serving.simulate.calibrated import machine_of, step_times, with_ways

    model = given["model"] or platform.models[0].name
    faults = tuple(fault(text, model) for text in given["faults"])
    known = step_times(given["step_times"], tuple(one.name for one in platform.models))
    machines = {name: machine_of(times) for name, times in known.items()}
    serving = serving_of(platform, machines=machines, seed=given["seed"])
    serving = changed(with_ways(serving, known), given["changes"], model)
    return replace(serving, faults=faults)
