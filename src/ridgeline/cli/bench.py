"""`ridgeline bench`: measure an OpenAI-compatible server under load; compare two measurements.

`bench engine`, which needs no server, is in `bench_engine`; `bench cold-start`, which starts its
own, in `bench_cold_start`.

Exit status: 0; 1 where the answer is no (goodput below --attainment, no load held, nothing was
answered, a run flagged, the client was the bottleneck); 2 bad input; 130 after Ctrl-C.
"""

import functools
import json
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ridgeline.cli.bench_cold_start import cold_start
from ridgeline.cli.bench_engine import engine
from ridgeline.cli.extras import needs
from ridgeline.errors import BenchError, SpecError
from ridgeline.units import parse_seconds

DEFAULT_REQUESTS = 100
DEFAULT_LEVEL_S = 30.0
DEFAULT_RATE_PER_S = 1.0
INTERRUPTED = 130


@click.group()
def bench() -> None:
    """Measure a server under load."""


bench.add_command(cold_start)
bench.add_command(engine)


def seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """A duration; a bare number means seconds."""
    if value is None:
        return None
    try:
        duration_s = parse_seconds(f"{value}s" if value[-1:].isdigit() else value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if duration_s <= 0:
        raise click.BadParameter("must be over 0")
    return duration_s


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda command: functools.reduce(lambda made, add: add(made), reversed(options), command)


class Positive(click.FloatRange):
    """A number above nought and below infinity; nan passes click's own range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or click's complaint with the option's name."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a number to work with.", param, ctx)
        return number


POSITIVE = Positive(min=0, min_open=True)
COUNT = click.IntRange(min=1)
FILE = click.Path(path_type=Path, dir_okay=False)
LOAD = _options(
    click.option("--rate", type=POSITIVE, help="Open loop: requests/s, whatever the server does."),
    click.option("--concurrency", type=COUNT, help="Closed loop: workers.  [default: 1]"),
    click.option("--trace", type=FILE, help="Replay a file's arrivals and sizes; with --rate or "
                 "--concurrency its sizes only."),
    click.option("--arrivals", default="poisson", show_default=True,
                 help="With --rate: poisson, uniform (evenly spaced) or gamma:CV."),
    click.option("--speed", default=1.0, show_default=True, type=POSITIVE,
                 help="Replay a trace this many times faster."),
    click.option("--limit", type=COUNT, help="Only the first rows of the trace."),
    click.option("--requests", type=COUNT, help="How many.  [default: 100, or the whole trace]"),
    click.option("--duration", callback=seconds, metavar="SECONDS",
                 help="Send no new request after this; 30s, 2m.  [default with --sweep: 30s]"),
)  # fmt: skip
SIZES = _options(
    click.option("--prompt-tokens", default="128", show_default=True,
                 help="A number, uniform:LOW:HIGH, normal:MEAN:SD or lognormal:MEAN:CV."),
    click.option("--output-tokens", default="128", show_default=True, help="The same."),
    click.option("--shared-prefix-tokens", default=0, show_default=True,
                 type=click.IntRange(min=0), help="How many of them all prompts begin with."),
    click.option("--ignore-eos", is_flag=True, help="Answers run to full length (vLLM's field)."),
)  # fmt: skip
JUDGED = _options(
    click.option("--slo", help="Objectives for goodput: ttft=500ms,tpot=50ms,e2e=10s."),
    click.option("--attainment", default=0.9, show_default=True,
                 type=click.FloatRange(min=0, max=1, min_open=True),
                 help="The least share of goodput; below it the exit status is 1."),
    click.option("--sweep", is_flag=True, help="Raise the load until goodput or throughput gives "
                 "in, then find the highest load that holds."),
)  # fmt: skip
SERVER = _options(
    click.option("--model", help="Not needed where only one is served."),
    click.option("--api", default="chat", show_default=True,
                 type=click.Choice(["chat", "completions"])),
    click.option("--api-key", envvar="RIDGELINE_API_KEY", show_envvar=True),
    click.option("--timeout", default="600", callback=seconds, show_default=True,
                 metavar="SECONDS", help="A request that takes longer has failed."),
    click.option("--warmup", default=2, show_default=True, type=click.IntRange(min=0),
                 help="Requests sent before, not measured."),
    click.option("--seed", type=click.IntRange(min=0), help="The same seed sends the same "
                 "requests.  [default: a new one, so that no cache knows the prompts]"),
)  # fmt: skip
OUTPUT = _options(
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table."),
    click.option("--save", type=FILE, help="Write JSON with every request, for `compare`."),
    click.option("--plot", type=FILE, help="Draw a PNG."),
)


@bench.command()
@click.argument("url")
@LOAD
@SIZES
@JUDGED
@SERVER
@OUTPUT
@click.pass_context
def load(ctx: click.Context, /, url: str, **given: Any) -> None:
    """Send load to the OpenAI-compatible server at URL and measure how it is served.

    \b
    ridgeline bench load http://127.0.0.1:8000 --rate 2 --slo ttft=500ms,tpot=50ms
    ridgeline bench load http://127.0.0.1:8000 --concurrency 16 --requests 200
    ridgeline bench load http://127.0.0.1:8000 --sweep --slo ttft=1s,tpot=60ms --plot knee.png
    ridgeline bench load http://127.0.0.1:8000 --trace azure2023_conv.csv.gz --speed 0.2
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    needs("aiohttp", "bench")
    if given["plot"] is not None:
        needs("matplotlib", "bench")
        from ridgeline.serving.bench.picture import check_place

        check_place(given["plot"])
    if given["save"] is not None and not given["save"].parent.is_dir():
        raise SpecError(f"the folder {given['save'].parent} does not exist", where="--save")
    try:
        ctx.exit(_measure(url, given))
    except BenchError as error:
        click.echo(f"ridgeline: {error}", err=True)
        ctx.exit(1)


def _measure(url: str, given: dict[str, Any]) -> int:
    """Run or sweep, show the result, and return the exit status."""
    from rich.console import Console

    from ridgeline.serving.bench.measure import Levels, measure_run, measure_sweep
    from ridgeline.serving.bench.picture import draw_run, draw_sweep
    from ridgeline.serving.bench.progress import watching
    from ridgeline.serving.bench.table import level_text, run_text, sweep_text

    plan = _plan(url, given)
    console = Console(stderr=True)
    with watching(console) as watcher:
        if given["sweep"]:
            levels = Levels(
                given["attainment"],
                lambda report, verdict: console.print(
                    level_text(report, verdict), markup=False, highlight=False, soft_wrap=True
                ),
            )
            swept = measure_sweep(plan, watcher, levels)
        else:
            ran = measure_run(plan, watcher)
    if given["sweep"]:
        _show(swept, sweep_text(swept), given)
        if given["plot"] is not None and swept.levels:
            draw_sweep(swept, given["plot"])
        return INTERRUPTED if swept.interrupted else int(swept.best is None)
    _show(ran, run_text(ran), given)
    if given["plot"] is not None:
        draw_run(ran, given["plot"])
    if ran.interrupted:
        return INTERRUPTED
    short = ran.slo is not None and ran.goodput.share < given["attainment"]
    return int(short or ran.completed == 0)


def _show(result: Any, text: str, given: dict[str, Any]) -> None:
    click.echo(json.dumps(result.to_dict(), indent=1) if given["as_json"] else text)
    if given["save"] is not None:
        given["save"].write_text(json.dumps(result.to_dict(samples=True)) + "\n", encoding="utf-8")


def _plan(url: str, given: dict[str, Any]) -> Any:
    """The command's arguments as a plan. Raises SpecError."""
    from ridgeline.serving.bench.goodput import parse_slo
    from ridgeline.serving.bench.load import Plan
    from ridgeline.workload import parse_arrivals, parse_sizes

    trace = _trace(given)
    rate, workers = _loop(given, trace)
    requests, duration_s = given["requests"], given["duration"]
    if requests is None and duration_s is None and trace is None and not given["sweep"]:
        requests = DEFAULT_REQUESTS
    if requests is None and duration_s is None and given["sweep"]:
        duration_s = DEFAULT_LEVEL_S
    return Plan(
        url=url,
        seed=secrets.randbelow(2**31) if given["seed"] is None else given["seed"],
        model=given["model"],
        api=given["api"],
        api_key=given["api_key"],
        rate_per_s=rate,
        workers=workers,
        arrivals=parse_arrivals(given["arrivals"]),
        trace=trace,
        requests=requests,
        duration_s=duration_s,
        prompt=parse_sizes(given["prompt_tokens"], where="--prompt-tokens"),
        output=parse_sizes(given["output_tokens"], where="--output-tokens"),
        shared_tokens=given["shared_prefix_tokens"],
        slo=parse_slo(given["slo"]) if given["slo"] else None,
        warmup=given["warmup"],
        ignore_eos=given["ignore_eos"],
        timeout_s=given["timeout"],
    )


def _trace(given: dict[str, Any]) -> Any:
    from ridgeline.workload import read_trace

    if given["trace"] is None:
        return None
    return read_trace(given["trace"], speed=given["speed"], limit=given["limit"])


def _loop(given: dict[str, Any], trace: Any) -> tuple[float | None, int | None]:
    """The rate or the number of workers; neither for a replay."""
    rate, workers = given["rate"], given["concurrency"]
    if rate is not None and workers is not None:
        raise SpecError(
            "an open loop (--rate) and a closed one (--concurrency) exclude each other",
            where="--rate",
            remedy="one of the two",
        )
    if rate is not None or workers is not None:
        return rate, workers
    if given["sweep"]:
        return DEFAULT_RATE_PER_S, None
    if trace is None:
        return None, 1
    if not trace.timed:
        raise SpecError(
            f"{trace.name} holds lengths and no arrivals",
            where="--trace",
            remedy="--rate or --concurrency beside it",
        )
    return None, None


@bench.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("after", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.pass_context
def compare(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Compare two runs saved by `bench load --save`; exit status 1 where AFTER is flagged.

    Flagged is a run that gives more tokens/s while fewer requests meet their objectives.
    """
    needs("aiohttp", "bench")
    from dataclasses import asdict

    from ridgeline.serving.bench.compare import compare as compared
    from ridgeline.serving.bench.table import compare_text

    first, second = _saved(before), _saved(after)
    if first.slo != second.slo:
        raise SpecError(
            f"was held to other objectives ({second.slo or 'none'}) than {before} "
            f"({first.slo or 'none'})",
            where=str(after),
            remedy="the same --slo in both runs",
        )
    finding = compared(first, second)
    if as_json:
        click.echo(
            json.dumps({"flagged": finding is not None, "finding": finding and asdict(finding)})
        )
    else:
        click.echo(compare_text(first, second, finding))
    ctx.exit(int(finding is not None))


def _saved(path: Path) -> Any:
    from ridgeline.serving.bench.report import Report

    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SpecError("is not JSON", where=str(path)) from error
    return Report.from_dict(said if isinstance(said, dict) else {}, where=str(path))
