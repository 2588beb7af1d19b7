"""`ridgeline rollout`: from one version of a model to the next, step by step, or back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ridgeline.cli.databases import (
    database_option,
    echo_json,
    json_option,
    named_url,
    placed,
    same_place,
)
from ridgeline.cli.engine_settings import engine_settings
from ridgeline.cli.extras import needs
from ridgeline.cli.tables import console
from ridgeline.errors import SpecError
from ridgeline.serving.models.weights import settled, stored
from ridgeline.serving.spec import ModelSpec
from ridgeline.spec import checked, load
from ridgeline.units import parse_seconds

if TYPE_CHECKING:  # the extra [gateway] is needed only once a command runs
    from ridgeline.serving.control.rollout_log import Kept, RolloutLog

_SPEC = click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))


@click.group()
def rollout() -> None:
    """Move a model that is served to another version, and back where that is worse.

    SPEC is the platform.yaml that `ridgeline up` runs. A rollout goes on without this command.
    """


@rollout.command()
@click.argument("model")
@_SPEC
@click.option("--to", "weights", metavar="MODEL", help="Other weights: a name, a path, sha256:…")
@click.option("--engine", "settings", multiple=True, metavar="KEY=VALUE",
              help="Another setting of its engine; repeatable.")  # fmt: skip
@click.option("--steps", default="5%,25%,50%", show_default=True, help="Its share, step by step.")
@click.option("--effect", default="20%", show_default=True, help="Slower by so much goes back.")
@click.option("--keep", default="10m", show_default=True, help="The old one stays warm at the end.")
@database_option
@json_option
def start(
    model: str,
    spec: Path,
    weights: str | None,
    settings: tuple[str, ...],
    steps: str,
    effect: str,
    keep: str,
    database: str | None,
    as_json: bool,
) -> None:
    """Begin a rollout of MODEL."""
    now, changed = settled(_model(spec, model)), engine_settings(settings)
    shares = tuple(_share(step, "--steps") for step in steps.split(","))
    worse, keep_s = _share(effect, "--effect", most=10.0), _seconds(keep)
    with _log(spec, database) as log:
        from ridgeline.serving.control.versions import Version, version_of
        from ridgeline.serving.policy.gate import USUAL_VARIANCE, Criteria, sample_size
        from ridgeline.serving.policy.rollout import Plan

        old = log.live(model, version_of(now))
        version = stored(weights)
        its = {} if version is None else version.engine
        named = weights if version is None else version.id  # a name may move, a rollout may not
        new = Version(named or old.model, {**old.engine, **its, **changed})
        told = {"name": model, "model": new.model, "engine": dict(new.engine)}
        new = version_of(checked({"models": [told]}, name="--engine").models[0])
        plan = Plan(shares, keep_s=keep_s)
        criteria = Criteria(effect=1 + worse)
        kept = log.start(model, old, new, plan, criteria)
    if as_json:
        echo_json(kept.told())
        return
    click.echo(f"{kept.rollout.id}: {model} from version {old.id} to {new.id}")
    for step in plan.steps:
        count = sample_size(USUAL_VARIANCE, step, criteria)
        click.echo(
            f"  {step:4.0%} of requests   about {count:,} of the new version tell whether it is "
            f"{criteria.effect - 1:.0%} slower"
        )
    click.echo(f"ridgeline rollout status {quote(model)}{same_place(spec, database)}")


@rollout.command()
@click.argument("model")
@_SPEC
@database_option
@json_option
def status(model: str, spec: Path, database: str | None, as_json: bool) -> None:
    """Show the rollouts of MODEL, the last one with its evidence. Exit status 1: there is none."""
    with _log(spec, database) as log:
        found = log.latest(model)
    if as_json:
        echo_json([kept.told() for kept in found])
    elif not found:
        then = f"ridgeline rollout start {quote(model)}{same_place(spec, database)}"
        click.echo(f"No rollout of {model} yet.\n  {then}")
    else:
        _show(console(), found)
    raise SystemExit(0 if found else 1)


@rollout.command()
@click.argument("model")
@_SPEC
@database_option
def promote(model: str, spec: Path, database: str | None) -> None:
    """Give all requests to the new version now, whatever the gate has seen, unless it is worse."""
    with _log(spec, database) as log:
        click.echo(f"{log.wish(model, 'promote')} will be promoted")


@rollout.command()
@click.argument("model")
@_SPEC
@database_option
def abort(model: str, spec: Path, database: str | None) -> None:
    """Give all requests back to the old version."""
    with _log(spec, database) as log:
        click.echo(f"{log.wish(model, 'abort')} will go back")


@contextmanager
def _log(spec: Path, database: str | None) -> "Iterator[RolloutLog]":
    needs("sqlalchemy", "gateway")
    from ridgeline.serving.control.rollout_log import RolloutLog
    from ridgeline.store.database import open_store

    url = database if database is not None else named_url(spec, None)
    with placed(spec, database):
        engine = open_store(url, create=False)
        try:
            yield RolloutLog(engine)
        finally:
            engine.dispose()


def _model(spec: Path, name: str) -> ModelSpec:
    models = load(spec).models
    for one in models:
        if one.name == name and one.engine.kind != "url":
            return one
    named = ", ".join(one.name for one in models if one.engine.kind != "url")
    raise SpecError(
        f"{spec} starts no replicas of a model {name!r}", where="MODEL", remedy=f"one of: {named}"
    )


def _share(text: str, where: str, most: float = 1.0) -> float:
    """`5%` or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < most:
        raise SpecError(f"{text!r} is no share", where=where, remedy="5%, or 0.05")
    return share


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise SpecError(str(error), where="--keep") from error


def _show(out: Console, found: "list[Kept]") -> None:
    """The last one whole, the others in a line each."""
    last, *others = found
    told = last.rollout
    weight = f", {last.plan.steps[told.step]:.0%} of requests" if told.phase == "canary" else ""
    ago_s = (time.time_ns() - told.since_ns) / 1e9
    out.print(
        f"[bold]{told.id}[/]  {escape(told.model)}  {told.old} to {told.new}:  "
        f"[bold]{told.phase}[/]{weight}, for {ago_s:,.0f} s"
    )
    out.print(f"  {escape(told.reason)}")
    for key in sorted({*last.old.engine, *last.new.engine, "model"}):
        before = last.old.model if key == "model" else last.old.engine.get(key)
        after = last.new.model if key == "model" else last.new.engine.get(key)
        if before != after:
            out.print(escape(f"  {key}: {before} to {after}"))
    evidence = last.evidence
    if "planned" in evidence:
        seen = evidence.get("requests", {"old": 0, "new": 0})
        planned = f"{seen['new']:,} of {evidence['planned']:,} requests"
        out.print(f"  {planned} of the new version, {seen['old']:,} of the old one")
    for gate in evidence.get("gates", []):
        mark = "[red]worse[/]" if gate["is_worse"] else "[green]no worse[/]"
        out.print(f"  {mark}  {escape(gate['reason'])}")
    if others:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for name in ("before", "from", "to", "phase", "reason"):
            table.add_column(name)
        for one in others:
            rollout_ = one.rollout
            row = (rollout_.id, rollout_.old, rollout_.new, rollout_.phase.value, rollout_.reason)
            table.add_row(*map(escape, row))
        out.print(table)
