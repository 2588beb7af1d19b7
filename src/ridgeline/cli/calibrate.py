"""`ridgeline calibrate`: fit the step-time model to measured runs, into your own catalog file."""

import json
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ridgeline.catalog.own_file import add_row
from ridgeline.catalog.step_times import ANY, KIND
from ridgeline.physics.step_time import NAMES
from ridgeline.serving.plan.calibrate import Calibration, fit_all, read_runs
from ridgeline.show import number


@click.command()
@click.argument("runs", type=click.Path(path_type=Path))
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Catalog file to write the fits into; without it they are only shown.",
)
@click.option("--json", "as_json", is_flag=True, help="The rows as JSON.")
def calibrate(runs: Path, file: Path | None, as_json: bool) -> None:
    """Fit the step-time model to measured RUNS (a CSV), with intervals.

    A row is a closed loop: model, accelerator, engine, tensor_parallel, concurrency, input_tokens,
    output_tokens, tpot_ms; where known also version, dtype and kv_dtype. There is one fit for each
    model, accelerator, engine, version and dtype. A few points move only what they speak of: the
    rest stays at what was fitted on published measurements. A fit whose median error stays above
    30 % is said to be not believable.
    """
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
