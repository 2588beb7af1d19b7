"""`ridgeline systems`: the ledger's rows and the tests that prove them."""

import json
from collections import Counter

import click
from rich.console import Console
from rich.table import Table

from ridgeline import ledger


@click.command()
@click.option("--json", "as_json", is_flag=True, help="All rows as JSON.")
@click.option("--all", "show_all", is_flag=True, help="Also the rows that nothing proves yet.")
def systems(as_json: bool, show_all: bool) -> None:
    """List the systems that have to work, and the tests that prove them.

    Exit status 1 when a recorded proof has failed.
    """
    rows = ledger.rows()
    last = ledger.recorded()
    if as_json:
        click.echo(json.dumps(_as_data(rows, last), indent=1))
    else:
        _show(rows, last, show_all)
    if any(row.state == "failed" for row in rows):
        raise SystemExit(1)


def _as_data(rows: list[ledger.Row], last: ledger.Proofs) -> dict[str, object]:
    return {
        "recorded": last.recorded,
        "version": last.version,
        "systems": [
            {
                "id": row.system.id,
                "name": row.system.name,
                "domain": row.system.domain,
                "kind": row.system.kind,
                "works": row.system.works,
                "state": row.state,
                "tests": row.outcomes,
            }
            for row in rows
        ],
    }


def _show(rows: list[ledger.Row], last: ledger.Proofs, show_all: bool) -> None:
    console = Console()
    states = Counter(row.state for row in rows)
    counted = ", ".join(f"{states[state]} {state}" for state in ("proven", "failed", "not run"))
    console.print(f"{len(rows)} systems: {counted}, {states['open']} open", highlight=False)
    when = f"on {last.recorded}, version {last.version}" if last.recorded else "never"
    console.print(f"Last recorded `make prove`: {when}", highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("row", no_wrap=True, min_width=4)
    table.add_column("state", no_wrap=True, min_width=7)
    table.add_column("system and what its tests say", no_wrap=True, overflow="ellipsis")
    for row in rows:
        if row.outcomes or show_all:
            tests = [f"  {outcome}: {promise(name)}" for name, outcome in row.outcomes.items()]
            table.add_row(row.system.id, row.state, "\n".join([row.system.name, *tests]))
    console.print(table, highlight=False)


def promise(test: str) -> str:
    """A test's name as the sentence it is: `tests/test_x.py::test_a_fork_copies` says so."""
    return test.rpartition("::")[2].removeprefix("test_").replace("_", " ")
