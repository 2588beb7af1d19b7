"""`ridgeline cost`: what requests really cost, and what they would cost were no second idle."""

import datetime
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from ridgeline.cli.databases import named_url, placed, same_place
from ridgeline.cli.extras import needs
from ridgeline.cli.tables import console, print_table
from ridgeline.errors import SpecError
from ridgeline.units import parse_seconds

if TYPE_CHECKING:  # the extra [gateway] is needed only once the command runs
    from ridgeline.serving.gateway.cost import Report

#: From here on amounts are written without cents; below the other with three digits.
_MANY, _LITTLE = Decimal(1000), Decimal("0.1")
_GROUPS = ("tenant", "model", "key", "replica")


@click.command()
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://…; else SPEC's.")
@click.option("--since", default="24h", show_default=True, help="A time (UTC), or so long ago.")
@click.option("--until", default="0s", help="A time (UTC), or so long ago; now where not given.")
@click.option(
    "--by",
    default="tenant,model",
    show_default=True,
    help=f"One line for each of: {', '.join(_GROUPS)}; several with commas.",
)
@click.option(
    "--like",
    multiple=True,
    metavar="[NAME=]MODEL@ACCELERATOR",
    help="Whose step times share a model's seconds, e.g. chat=llama-3.1-8b@h100-sxm.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON; amounts are text.")
def cost(
    spec: Path | None,
    database: str | None,
    since: str,
    until: str,
    by: str,
    like: tuple[str, ...],
    as_json: bool,
) -> None:
    """Share the hardware's bill among those who used it; what nobody used stands beside it.

    SPEC is the platform.yaml whose ledger is read; without it the default platform's. Exit status
    1 where there is nothing yet.
    """
    needs("sqlalchemy", "gateway")
    from ridgeline.serving.gateway.cost import report
    from ridgeline.serving.gateway.cost_data import as_data
    from ridgeline.serving.gateway.usage import Period
    from ridgeline.store.database import open_store

    now_ns = time.time_ns()
    period = Period(_instant_ns(since, now_ns, "--since"), _instant_ns(until, now_ns, "--until"))
    with placed(spec, database):
        store = open_store(named_url(spec, database), create=False)
    try:
        found = report(store, period, tuple(by.split(",")), like=_named(like))
    finally:
        store.dispose()
    if as_json:
        click.echo(json.dumps(as_data(found), indent=1))
    else:
        _print(console(), found, f"ridgeline cost{same_place(spec, database)}")
    raise SystemExit(0 if found.requests or found.bill_usd else 1)


def _instant_ns(written: str, now_ns: int, option: str) -> int:
    """`24h` ago, or an ISO date or time, in UTC where it has no offset."""
    try:
        instant = datetime.datetime.fromisoformat(written)
    except ValueError:
        try:
            return now_ns - round(parse_seconds(written) * 1e9)
        except ValueError as error:
            remedy = "24h, 30d, 2026-11-30 or 2026-11-30T08:00+01:00"
            raise SpecError(f"{written!r} is no time", where=option, remedy=remedy) from error
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=datetime.UTC)
    return int(instant.timestamp()) * 1_000_000_000


def _named(like: tuple[str, ...]) -> dict[str, str]:
    """NAME=MODEL@ACCELERATOR; without a name for every model."""
    pairs = (one.rpartition("=") for one in like)
    return {name: step_times for name, _, step_times in pairs}


def _print(out: Console, found: "Report", command: str) -> None:
    """The answer first; `command` is what was typed, without options."""
    from ridgeline.serving.gateway.cost_data import instant

    first, end = (instant(minute) for minute in found.period.minutes)
    if not found.requests and not found.bill_usd:
        out.print(f"No requests yet, from {first} to {end}.")
        out.print(Text(f"  {command} --since 30d"), soft_wrap=True)
        return
    out.print(_answer(found))
    out.print(f"  {first} to {end} · {found.requests:,} requests · bill ${found.bill_usd:,.2f}")
    if found.lines:
        _print_prices(out, found)
    _print_bill(out, found)
    for note in _notes(found, command):
        is_command = note.startswith("  ")  # stays whole, to be copied
        out.print(Text(note), soft_wrap=is_command)


def _answer(found: "Report") -> str:
    from ridgeline.serving.gateway.cost_data import binds, prices

    if not found.requests:
        return f"No requests, and {_money(found.bill_usd)} of hardware"
    if not found.bill_usd:
        return f"{found.requests:,} requests, and no hardware with a price"
    floor, actual = prices(found.whole)["per_1k_requests"]
    share = f"{found.busy_share:.0%}".replace("%", " %")
    what = binds(found)
    return (
        f"{_money(actual)} for 1,000 requests against a floor of {_money(floor)}: "
        f"the replicas were {share} busy" + (f"   {what} binds" if what else "")
    )


def _print_prices(out: Console, found: "Report") -> None:
    """Each group's prices: what it would be were no second idle, and what it is."""
    from ridgeline.serving.gateway.cost_data import prices

    charged = any(line.usage.charged_usd for line in found.lines)
    headings = ["requests", "$/1k requests", "$/M tokens in", "$/M out"]
    rows = []
    for line in found.lines:
        cells = [f"{_bare(floor)} → {_bare(actual)}" for floor, actual in prices(line).values()]
        last = [_money(line.usage.charged_usd)] if charged else []
        name, *names = line.usage.of
        rows.append([f"  {name}", *names, f"{line.usage.requests:,}", *cells, *last])
    name, *names = found.by
    headings = [f"  {name}", *names, *headings, *(["charged"] if charged else [])]
    out.print()
    print_table(out, headings, rows, first=len(found.by), right=True)
    out.print("  floor → actual; the floor is without idle, loading and drained seconds\n")


def _print_bill(out: Console, found: "Report") -> None:
    from ridgeline.serving.gateway.cost_data import lines_of_bill

    rows = [(f"  {name}", f"{amount:,f}") for name, amount in lines_of_bill(found)]
    print_table(out, ("  bill", "$"), rows, first=1, right=True)
    out.print()


def _notes(found: "Report", command: str) -> list[str]:
    from ridgeline.serving.gateway.cost import STANDS_IN

    notes = [f"{model}: shared by {source}" for model, source in found.sources.items()]
    if any(source.endswith(STANDS_IN) for source in found.sources.values()):
        notes.append("say whose step times are right:")
        notes.append(f"  {command} --like MODEL@ACCELERATOR")
    if found.unpriced:
        replicas = ", ".join(found.unpriced)
        notes.append(f"no price for {replicas}: set models[].replicas.usd_per_hour")
    other = "replica" if found.by != ("replica",) else "tenant"
    return [
        *notes,
        "other lines, or another time:",
        f"  {command} --by {other}",
        f"  {command} --by key --since 30d --json",
    ]


def _money(usd: Decimal | None) -> str:
    return "-" if usd is None else f"${_bare(usd)}"


def _bare(usd: Decimal | None) -> str:
    """In cents; in dollars where it is many, with three digits where it is little."""
    if usd is None:
        return "-"
    if usd >= _MANY:
        return f"{usd:,.0f}"
    return f"{usd:,.2f}" if usd >= _LITTLE or not usd else f"{usd:.3g}"
