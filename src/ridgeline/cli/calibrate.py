"""`ridgeline calibrate`: fit the step-time model to measured runs, into your own catalog file.

With `--from-live` a running engine is profiled instead: `calibrate_live`.
"""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ridgeline.catalog.own_file import add_row
from ridgeline.catalog.step_times import ANY, KIND
from ridgeline.cli.calibrate_live import from_live
from ridgeline.errors import SpecError
from ridgeline.physics.step_time import NAMES
from ridgeline.serving.plan.calibrate import Calibration, fit_all, read_runs
from ridgeline.show import number

_LIVE = (
    "through",
    "seconds",
    "sequences",
    "context",
    "step_tokens",
    "kv_tokens",
    "model",
    "api_key",
)


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from-live",
    "urls",
    multiple=True,
    metavar="URL",
    help="Profile a running engine; twice for two that share a machine.",
)
@click.option(
    "--through",
    metavar="URL",
    help="Live: their gateway, if it is on the same machine: batches are asked through it.",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write into, a catalog or (live) step times; else they are only shown.",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1, max=600),
    help="Live: how long to profile.",
)
@click.option(
    "--sequences",
    default=32,
    show_default=True,
    type=click.IntRange(min=4),
    help="Live: the largest batch.",
)
@click.option(
    "--context",
    default=1024,
    show_default=True,
    type=click.IntRange(min=64),
    help="Live: the longest prompt, in tokens.",
)
@click.option(
    "--step-tokens",
    default=512,
    show_default=True,
    type=click.IntRange(min=64),
    help="Live: tokens that the engine takes in one step at most.",
)
@click.option(
    "--kv-tokens", type=click.IntRange(min=1), help="Live: tokens of its cache, if it does not say."
)
@click.option("--model", help="Live: not needed where only one is served.")
@click.option("--api-key", envvar="RIDGELINE_API_KEY", show_envvar=True, help="Live.")
@click.option("--json", "as_json", is_flag=True, help="The rows as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context,
    /,
    runs: Path | None,
    urls: tuple[str, ...],
    file: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit the step-time model to measured RUNS (a CSV), with intervals.

    A row is a closed loop: model, accelerator, engine, tensor_parallel, concurrency, input_tokens,
    output_tokens, tpot_ms; where known also version, dtype and kv_dtype. There is one fit for each
    model, accelerator, engine, version and dtype. A few points move only what they speak of: the
    rest stays at what was fitted on published measurements. A fit whose median error stays above
    30 % is said to be not believable.

    With --from-live a running engine is asked for a minute, over OpenAI's API, and nobody else may
    use it meanwhile: the step times go into a file for `simulate serving --step-times`.
    """
    if urls and runs is None:
        from_live(urls, file, {**given, "as_json": as_json})
        return
    _check_only_runs(ctx, urls, runs)
    assert runs is not None, "checked"
    fits = fit_all(read_runs(runs))
    rows = [one.row(f"ridgeline calibrate {runs.name}") for one in fits]
    if file is not None:
        for row in rows:
            add_row(file, KIND, row)
    for one in fits:
        _warn(one)
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for one in fits:
        _show(one)
    if file is not None:
        click.echo(f"written into {file}; RIDGELINE_CATALOG={file} makes every plan use it")
    else:
        click.echo("--file my-catalog.yaml keeps them")


def _check_only_runs(ctx: click.Context, urls: tuple[str, ...], runs: Path | None) -> None:
    """SpecError where it is neither of both ways, or options are of the other one."""
    if urls or runs is None:
        told = "RUNS and --from-live" if urls else "neither RUNS nor --from-live"
        remedy = "calibrate runs.csv, or calibrate --from-live URL"
        raise SpecError(f"has {told}", where="calibrate", remedy=remedy)
    for name in _LIVE:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise SpecError("is of --from-live", where=option, remedy="leave it out")


def _warn(one: Calibration) -> None:
    if one.is_believable:
        return
    after = f"{float(np.median(one.after)):.0%}"
    told = (
        f"{_told(one)}: not believable, since half of its runs are {after} off even after the fit"
    )
    remedy = "check units, lengths and the model of these runs; --file keeps the row all the same"
    click.echo(f"ridgeline: warning: {told}\n  try: {remedy}", err=True)


def _told(one: Calibration) -> str:
    return " ".join(word for word in one.key if word != ANY)


def _show(one: Calibration) -> None:
    before, after = (float(np.median(errors)) * 100 for errors in (one.before, one.after))
    click.echo(
        f"{_told(one)}: {len(one.after)} runs, median error {before:.1f} % before, {after:.1f} %"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("coefficient", "value", "95 % within"):
        table.add_column(column, justify="left" if column == "coefficient" else "right")
    for index, name in enumerate(NAMES):
        low, high = one.fitted.interval(index)
        value = number(float(one.fitted.values[index]), 3)
        table.add_row(name, value, f"{number(low, 3)} ... {number(high, 3)}")
    Console().print(table, highlight=False)
