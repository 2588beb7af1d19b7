"""`ridgeline why REQUEST_ID`: what was decided for a request, by what, and where its time went."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ridgeline.cli.databases import named_url, placed
from ridgeline.cli.extras import needs
from ridgeline.cli.tables import console
from ridgeline.errors import SpecError


@click.command()
@click.argument("request_id")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://…; else SPEC's.")
@click.option("--json", "as_json", is_flag=True, help="All of it: views, scores, times.")
def why(request_id: str, spec: Path | None, database: str | None, as_json: bool) -> None:
    """Say why a request went where it went, and where its time was spent.

    REQUEST_ID is the answer's X-Request-Id, or the client's own. Decisions are kept for a day.
    """
    needs("sqlalchemy", "gateway")
    from ridgeline.serving.gateway.decisions import decision
    from ridgeline.store.database import open_store

    with placed(spec, database):
        store = open_store(named_url(spec, database), create=False)
    try:
        found = decision(store, request_id)
    finally:
        store.dispose()
    if found is None:
        raise SpecError(
            f"no request {request_id!r} is on record",
            where="why",
            remedy="the X-Request-Id of an answer of the last day, from this platform's gateway",
        )
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    _show(console(), found)


def _show(out: Console, found: dict[str, Any]) -> None:
    """The answer first, then the times, then what each replica looked like."""
    request = found["request_id"]
    out.print(
        f"[bold]{escape(request)}[/]  {escape(found['model'])}  {escape(found['endpoint'])}  "
        f"tenant {escape(found['tenant'])}, class {escape(found['class'])}"
    )
    ending = f"status {found['status']}" + (f": {found['error']}" if found["error"] else "")
    went = f"went to {found['replica']}" if found["replica"] else "went nowhere"
    again = f" after {len(found['decisions'])} attempts" if found["retries"] else ""
    on = ", where its stream went on when its first replica was gone" if found["resumed"] else ""
    out.print(escape(f"{went}{again}{on}; {ending}"))
    for what, reason in found["reasons"].items():
        out.print(f"  {escape(what):<9} {escape(reason)}")
    if found.get("charge"):
        charge = found["charge"]
        out.print(
            escape(
                f"  charged   {charge['usd']} USD: {charge['input_tokens']:,} tokens in "
                f"({charge['cached_tokens']:,} cached), {charge['output_tokens']:,} out, "
                f"by {charge['basis']}"
            )
        )
    split = found["split_s"]
    total_s = sum(split.values()) or 1.0
    times = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    times.add_column("where the time went")
    times.add_column("ms", justify="right")
    times.add_column("", justify="left")
    for part, spent_s in split.items():
        bar = "#" * round(24 * spent_s / total_s)
        times.add_row(part, f"{spent_s * 1e3:,.1f}", bar)
    out.print(times)
    for number, one in enumerate(found["decisions"], 1):
        out.print(_candidates(number, one))


def _candidates(number: int, one: dict[str, Any]) -> Table:
    """What one decision knew of each replica that could be chosen."""
    route, view = one["route"], one["view"]
    rule = view["rule"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), title_justify="left")
    table.title = escape(f"attempt {number}, {rule}")
    for name in ("replica", "requests", "waiting tokens", "warm", "to compute", "cost"):
        table.add_column(name, justify="left" if name == "replica" else "right")
    for score in route["scores"]:
        mark = "▸ " if score["replica"] == route["replica"] else "  "
        table.add_row(
            mark + escape(score["replica"]),
            f"{score['load']:,}",
            f"{score['backlog_tokens']:,}",
            f"{score['warm_tokens']:,}",
            f"{score['uncached_tokens']:,}",
            f"{score['cost']:,.0f}",
        )
    return table
